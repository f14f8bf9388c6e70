// SPDX-License-Identifier: Apache-2.0
// This test is also built without assertions: a failed check that ends the process here also ends it in a
// release build.
#include "libckpt/base/result.h"

#include <gtest/gtest.h>

#include <csignal>
#include <memory>
#include <string>
#include <vector>

namespace ckpt {
namespace {

Result<std::string> refused() {
  return Error(ErrorCode::kRefused, "The disk is full");
}
Result<std::string> name() {
  return std::string("train");
}

// Expects the signal instead of an exit code. Otherwise gtest's own check would set the exit code of a death
// test; the signal shows that the process aborted.
const auto kAborted = testing::KilledBySignal(SIGABRT);

TEST(ResultDeathTest, AnErrorReadAsAValueAbortsAndIsPrinted) {
  const Result<std::string> kept = refused();
  EXPECT_EXIT((void)*kept, kAborted, "an error was read as a value: The disk is full");
  EXPECT_EXIT((void)*refused(), kAborted, "The disk is full");
  EXPECT_EXIT((void)kept->size(), kAborted, "The disk is full");
  EXPECT_EXIT((void)kept.value(), kAborted, "The disk is full");
}

TEST(ResultDeathTest, AValueReadAsAnErrorAborts) {
  const Result<std::string> kept = name();
  EXPECT_EXIT((void)kept.error(), kAborted, "a result without an error was read as an error");
  const Result<void> done = ok();
  EXPECT_EXIT((void)done.error(), kAborted, "a result without an error was read as an error");
}

TEST(ResultDeathTest, ValueOfAFailedResultAborts) {
  const Result<void> failed = Error(ErrorCode::kIo, "Writing failed");
  EXPECT_EXIT(failed.value(), kAborted, "Writing failed");
}

TEST(Result, ResultReadsAndWritesItsValueInPlace) {
  Result<std::vector<int>> numbers = std::vector<int>{1, 2};
  numbers->push_back(3);
  (*numbers)[0] = 7;
  EXPECT_EQ(*numbers, (std::vector<int>{7, 2, 3}));
}

TEST(Result, ResultMovesItsValueOut) {
  Result<std::unique_ptr<int>> made = std::make_unique<int>(5);
  const std::unique_ptr<int> taken = *std::move(made);
  EXPECT_EQ(*taken, 5);
}

}  // namespace
}  // namespace ckpt
