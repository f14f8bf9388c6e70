// SPDX-License-Identifier: Apache-2.0
// This test is also built without assertions: a failed check that ends the process here also ends it in a
// release build.
#include "libckpt/base/check.h"

#include <gtest/gtest.h>

#include <csignal>

namespace ckpt {
namespace {

// Expects the signal instead of an exit code. Otherwise gtest's own check would set the exit code of a death
// test; the signal shows that the process aborted.
const auto kAborted = testing::KilledBySignal(SIGABRT);

TEST(CheckDeathTest, AViolatedInvariantAbortsWithItsLocationAndText) {
  const int held = 1;
  EXPECT_EXIT(CKPT_CHECK(held == 2, "one is two"), kAborted, "check_test.cc:[0-9]+.*one is two");
}

TEST(Check, CheckHasNoEffectIfTheInvariantHolds) {
  int looked = 0;
  CKPT_CHECK(++looked == 1, "the condition is evaluated once");
  EXPECT_EQ(looked, 1);
}

// CHECK is a single statement: an else after it belongs to the if before it.
TEST(Check, CheckCanBeUsedBetweenIfAndElse) {
  bool is_other = false;
  if (is_other)
    CKPT_CHECK(false, "never reached");
  else
    is_other = true;
  EXPECT_TRUE(is_other);
}

}  // namespace
}  // namespace ckpt
