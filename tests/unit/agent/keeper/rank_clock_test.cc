// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/rank/rank_clock.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace ckpt::keeper {
namespace {

TEST(RankClock, ClockLagIsTheOffsetOfTheTimeNamespace) {
  EXPECT_EQ(lag_of_offsets("monotonic          -1         500\nboottime           -2 999999000\n"),
            1'000'001'000);
  EXPECT_EQ(lag_of_offsets("monotonic           0         0\nboottime            0         0\n"), 0);
  EXPECT_EQ(lag_of_offsets("boottime 3 5\n"), -3'000'000'005);
  EXPECT_EQ(lag_of_offsets(""), 0);
  EXPECT_EQ(lag_of_offsets("boottime later\n"), 0);
}

TEST(RankClock, ClockOfThisProcessHasNoLag) {
  const Result<Nanos> lag = rank_clock_lag(::getpid());
  ASSERT_TRUE(lag.has_value()) << lag.error().to_string();
  EXPECT_EQ(*lag, 0);
}

}  // namespace
}  // namespace ckpt::keeper
