// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/track/scan_pace.h"

#include <gtest/gtest.h>

namespace ckpt::track {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// Simulates slices on a device that reads `rate` bytes per second and takes `fixed` for each launch.
Nanos take_slice(ScanPace& pace, double rate, Nanos fixed) {
  const std::uint64_t bytes = pace.slice_bytes(0.03);
  const Nanos took = fixed + static_cast<Nanos>(static_cast<double>(bytes) / rate * 1e9);
  pace.measured(bytes, took);
  return took;
}

TEST(ScanPace, AFastDeviceQuicklyGetsLongSlices) {
  ScanPace pace(2048 * kMiB);
  Nanos longest = 0;
  for (int i = 0; i < 8; ++i) longest = std::max(longest, take_slice(pace, 4.3e12, 20'000));
  EXPECT_EQ(pace.slice_bytes(0.03), 2048 * kMiB);
  EXPECT_LE(longest, kLaunchTarget);
}

TEST(ScanPace, SecondLaunchOnASlowDeviceTakesLessThanAMillisecond) {
  ScanPace pace(256 * kMiB);
  take_slice(pace, 1e9, 50'000);
  for (int i = 0; i < 10; ++i) EXPECT_LE(take_slice(pace, 1e9, 50'000), kLaunchTarget + 60'000) << i;
  EXPECT_GT(pace.slice_bytes(0.5), kMiB / 2);
}

TEST(ScanPace, SingleSlowSliceIsForgotten) {
  ScanPace pace(64 * kMiB);
  for (int i = 0; i < 10; ++i) take_slice(pace, 1e11, 10'000);
  ASSERT_EQ(pace.slice_bytes(0.03), 64 * kMiB);
  pace.measured(64 * kMiB, 1'000'000'000);
  EXPECT_LT(pace.slice_bytes(0.03), kMiB);
  for (int i = 0; i < 10; ++i) take_slice(pace, 1e11, 10'000);
  EXPECT_EQ(pace.slice_bytes(0.03), 64 * kMiB);
}

TEST(ScanPace, AScanAtFullDutyUsesTheLargestSlices) {
  ScanPace pace(256 * kMiB);
  pace.measured(kMiB, 1'000'000'000);
  EXPECT_EQ(pace.slice_bytes(1), 256 * kMiB);
  EXPECT_LT(pace.slice_bytes(0.99), kMiB);
}

TEST(ScanPace, RateOfTheLastSliceDecidesWhetherSlicesAreShort) {
  ScanPace pace(256 * kMiB);
  EXPECT_FALSE(pace.short_slices()) << "nothing is known yet";
  pace.delivered(256 * kMiB, kShortSlice / 2);
  EXPECT_TRUE(pace.short_slices());
  pace.delivered(8 * kMiB, kShortSlice / 2);
  EXPECT_FALSE(pace.short_slices()) << "a whole one would take 16 times as long";
  pace.delivered(0, 1);
  pace.delivered(8 * kMiB, 10'000);
  EXPECT_TRUE(pace.short_slices());
}

TEST(ScanPace, SliceIsNeverEmpty) {
  ScanPace pace(1);
  EXPECT_EQ(pace.slice_bytes(0.5), 1u);
  pace.measured(0, 1'000'000'000'000);
  EXPECT_EQ(pace.slice_bytes(0.5), 1u);
  pace.measured(1, 0);
  EXPECT_EQ(pace.slice_bytes(0.5), 1u);
}

TEST(ScanPace, IdleTimeMatchesTheDutyCycle) {
  for (const double duty : {0.001, 0.03, 0.1, 1.0 / 3, 0.5, 0.999}) {
    for (const Nanos busy : {Nanos{1}, Nanos{999}, Nanos{1'000'000}, Nanos{12'345'678'901}}) {
      const auto share =
          static_cast<double>(busy) / static_cast<double>(busy + ScanPace::pause_after(busy, duty));
      EXPECT_LE(share, duty * (1 + 1e-12));
      if (busy > 1000) {
        EXPECT_GT(share, duty * 0.99);
      }
    }
  }
  EXPECT_EQ(ScanPace::pause_after(1'000'000, 1), 0);
}

}  // namespace
}  // namespace ckpt::track
