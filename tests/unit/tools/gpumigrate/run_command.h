// SPDX-License-Identifier: Apache-2.0
// Runs the gpumigrate command in this process against a coordinator that a test plays (fake_coordinator.h),
// and creates this coordinator's answers.
// Threads: the command runs in the caller's thread.
#pragma once

#include <chrono>
#include <sstream>
#include <string>
#include <vector>

#include "tests/unit/tools/gpumigrate/fake_coordinator.h"
#include "tools/gpumigrate/program.h"

namespace ckpt::cli {

struct Ended {
  int code = 0;
  std::string out;
  std::string err;
};

struct RunOptions {
  bool terminal = false;
  std::chrono::milliseconds patience{};  // how long to retry an unreachable coordinator
  std::size_t columns = 0;               // columns of standard output's terminal; 0: not a terminal
};

// Runs the command. `home` contains the coordinator's address; `arguments` exclude the program's name.
inline Ended run(const std::string& home, const std::vector<std::string>& arguments,
                 const RunOptions& options = {}) {
  std::ostringstream out;
  std::ostringstream err;
  Context context{
      .out = out, .err = err, .terminal = options.terminal, .coordinator = CoordinatorClient(home)};
  context.patience = options.patience;
  context.screen.terminal = options.columns > 0;
  if (options.columns > 0)
    context.screen.measure = [&options] { return ScreenSize{.columns = options.columns}; };
  const int code = run_program(arguments, context);
  return {code, out.str(), err.str()};
}

inline FakeAnswer json(const std::string& text, unsigned status = 200) {
  return {status, text, {}};
}

inline FakeAnswer refusal(unsigned status, const std::string& code, const std::string& message,
                          int exit_code) {
  const Json body = {{"error", {{"code", code}, {"message", message}, {"exit_code", exit_code}}}};
  return json(body.dump(), status);
}

inline bool has(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

}  // namespace ckpt::cli
