// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/support/answers.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <mutex>
#include <set>
#include <string>

namespace conformance {
namespace {

struct Answers {
  std::mutex mutex;
  std::set<std::string> lines;
};

const char* wanted() {
  static const char* const path = std::getenv("CONFORMANCE_ANSWERS");
  return path;
}

Answers& answers() {
  static auto* const all = new Answers;
  return *all;
}

}  // namespace

void note_answer(const char* function, CUresult result) {
  if (wanted() == nullptr || result == CUDA_ERROR_NOT_READY)
    return;  // the result depends on chance, because the query may arrive too early
  const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
  const std::string where = test == nullptr ? "-" : std::string(test->test_suite_name()) + "." + test->name();
  const std::lock_guard lock(answers().mutex);
  answers().lines.insert(where + " " + function + " " + std::to_string(static_cast<int>(result)));
}

bool write_answers() {
  if (wanted() == nullptr) return true;
  std::ofstream file(wanted());
  for (const std::string& line : answers().lines) file << line << "\n";
  return file.flush().good();
}

}  // namespace conformance
