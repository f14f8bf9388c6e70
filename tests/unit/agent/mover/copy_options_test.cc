// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/session/copy_options.h"

#include <gtest/gtest.h>

namespace ckpt::mover {
namespace {

TEST(CopyOptions, EveryCodecHasItsMode) {
  EXPECT_EQ(codec_mode(wire::CodecMode::kAuto), codec::CodecMode::kAuto);
  EXPECT_EQ(codec_mode(wire::CodecMode::kRaw), codec::CodecMode::kRaw);
  EXPECT_EQ(codec_mode(wire::CodecMode::kPlanes), codec::CodecMode::kPlanes);
  EXPECT_EQ(codec_mode(wire::CodecMode::kDifference), codec::CodecMode::kDifference);
}

TEST(CopyOptions, SlowdownSetsTheDutyCycle) {
  EXPECT_DOUBLE_EQ(duty_of(0), 1);
  EXPECT_DOUBLE_EQ(duty_of(30), 0.03);
  EXPECT_DOUBLE_EQ(duty_of(1000), 1);
  EXPECT_DOUBLE_EQ(duty_of(0xffffffff), 1);
}

TEST(CopyOptions, RoundsAfterTheDecisionUseAtMostAFifthOfTheTimeAndAtMostTheDutyCycle) {
  constexpr Nanos kRound = 1'000'000'000;
  for (const double duty : {1.0, 0.5, 0.25, 0.2, 0.1, 0.03, 0.001}) {
    const Nanos pause = fresh_pause(kRound, duty);
    const double busy = static_cast<double>(kRound) * duty;
    const double share = busy / static_cast<double>(kRound + pause);
    EXPECT_LE(share, 0.2 + 1e-9) << duty;
    EXPECT_LE(share, duty) << duty;
    // The scan also must not be idler than necessary, since the target would become stale.
    EXPECT_GE(share, std::min(duty, 0.2) * 0.97) << duty;
  }
  EXPECT_GT(fresh_pause(0, 1), 0);
}

TEST(CopyOptions, ShadowMemoryUsesAtMostHalfOfTheAvailableMemory) {
  constexpr std::string_view kMeminfo =
      "MemTotal:       32000000 kB\nMemAvailable:    2048 kB\nBuffers: 1 kB\n";
  EXPECT_EQ(shadow_memory(0, kMeminfo), 0U);
  EXPECT_EQ(shadow_memory(1000, kMeminfo), 1000U);
  EXPECT_EQ(shadow_memory(std::uint64_t{1} << 40, kMeminfo), std::uint64_t{1} << 20);
  EXPECT_EQ(shadow_memory(1000, ""), 0U);
  EXPECT_EQ(shadow_memory(1000, "MemAvailable:"), 0U);
  EXPECT_EQ(shadow_memory(1000, "MemAvailable:   x"), 0U);
}

}  // namespace
}  // namespace ckpt::mover
