// SPDX-License-Identifier: Apache-2.0
// Built without assertions, too: what ends the process here ends it in a release.
#include "libckpt/base/check.h"

#include <gtest/gtest.h>

#include <csignal>

namespace ckpt {
namespace {

// A death test's exit code is that of gtest's own check otherwise: the signal tells that the process ended itself.
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

// It is one statement: an else behind it belongs to the if before it.
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
