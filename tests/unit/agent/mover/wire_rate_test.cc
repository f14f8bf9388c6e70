// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/migration/wire_rate.h"

#include <gtest/gtest.h>

namespace ckpt::mover {
namespace {

constexpr Nanos kMs = 1'000'000;

TEST(WireRate, RateIsUnknownDuringTheFirstTenthOfASecond) {
  WireRate rate;
  EXPECT_EQ(rate.observe(0, 0), 0U);
  EXPECT_EQ(rate.observe(5'000'000, 50 * kMs), 0U);
  EXPECT_EQ(rate.observe(10'000'000, 100 * kMs), 100'000'000U);
}

TEST(WireRate, RateReflectsANewLimitWithinAboutOneSecond) {
  WireRate rate;
  std::uint64_t bytes = 0;
  for (Nanos now = 0; now < 3000 * kMs; now += 10 * kMs) rate.observe(bytes += 3'000'000, now);
  std::uint64_t last = 0;
  for (Nanos now = 3000 * kMs; now < 4200 * kMs; now += 10 * kMs) last = rate.observe(bytes += 100'000, now);
  EXPECT_NEAR(static_cast<double>(last), 10e6, 1e6);
}

}  // namespace
}  // namespace ckpt::mover
