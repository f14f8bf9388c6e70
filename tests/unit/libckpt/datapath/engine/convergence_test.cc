// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/engine/source/policy/convergence.h"

#include <gtest/gtest.h>

namespace ckpt::engine {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr Nanos kMs = 1'000'000;

RoundObservation round(std::uint64_t dirty, Nanos scan, Nanos total, double throughput = 1e9) {
  RoundObservation o;
  o.state_bytes = 2 * kGiB;
  o.dirty_bytes = dirty;
  o.scan_time = scan;
  o.round_time = total;
  o.throughput = throughput;
  return o;
}

TEST(Convergence, FirstRoundAloneGivesNoEstimate) {
  Convergence c({}, 1e9);
  EXPECT_EQ(c.observe(round(2 * kGiB, 50 * kMs, 2200 * kMs)), Advice::kContinue);
  EXPECT_FALSE(c.estimate().has_value());
}

TEST(Convergence, HandoverBeginsWhenTheEstimateIsWithinTheLimit) {
  Convergence c({.max_downtime = 100 * kMs, .fixed_cost = 5 * kMs}, 1e9);
  c.observe(round(2 * kGiB, 50 * kMs, 2200 * kMs));
  EXPECT_EQ(c.observe(round(40'000'000, 30 * kMs, 90 * kMs)), Advice::kSwitch);
  EXPECT_EQ(c.estimate(), 40 * kMs + 5 * kMs);  // sending takes longer than scanning
}

TEST(Convergence, ScanTimeDominatesIfFewBytesAreDirty) {
  Convergence c({.max_downtime = 100 * kMs, .fixed_cost = 5 * kMs}, 1e9);
  c.observe(round(2 * kGiB, 50 * kMs, 2200 * kMs));
  EXPECT_EQ(c.observe(round(1000, 30 * kMs, 31 * kMs)), Advice::kSwitch);
  EXPECT_EQ(c.estimate(), 35 * kMs);
}

TEST(Convergence, ScanOverTheLimitSwitchesAnywayOnlyIfAllowed) {
  Convergence c({.max_downtime = 20 * kMs}, 1e9);
  c.observe(round(2 * kGiB, 50 * kMs, 2200 * kMs));
  EXPECT_EQ(c.observe(round(1000, 30 * kMs, 31 * kMs)), Advice::kSwitchAnyway);
  Convergence patient({.max_downtime = 20 * kMs, .switch_anyway = false}, 1e9);
  patient.observe(round(2 * kGiB, 50 * kMs, 2200 * kMs));
  EXPECT_EQ(patient.observe(round(1000, 30 * kMs, 31 * kMs)), Advice::kContinue)
      << "the next scan may be faster";
}

TEST(Convergence, ASampleWithFewDirtyBytesAvoidsASecondRound) {
  RoundObservation first = round(2 * kGiB, 50 * kMs, 2200 * kMs);
  first.sampled_dirty_bytes = 10'000'000;
  Convergence c({.max_downtime = 100 * kMs, .fixed_cost = 5 * kMs}, 1e9);
  EXPECT_EQ(c.observe(first), Advice::kSwitch);
  EXPECT_EQ(c.estimate(), 55 * kMs);
  EXPECT_EQ(c.remaining_bytes(), 10'000'000u);
  Convergence strict({.max_downtime = 40 * kMs}, 1e9);
  EXPECT_EQ(strict.observe(first), Advice::kContinue) << "not within the limit";
  first.sampled_dirty_bytes = 60'000'000;
  Convergence much({.max_downtime = 100 * kMs}, 1e9);
  EXPECT_EQ(much.observe(first), Advice::kContinue) << "sending binds: another round shortens it";
}

TEST(Convergence, MoveAbortsAfterTheFirstRoundIfTheOtherPauseTermsExceedTheLimit) {
  Convergence c(
      {.max_downtime = 30 * kMs, .switch_anyway = false, .fixed_cost = 90 * kMs, .beside = 70 * kMs}, 1e9);
  EXPECT_EQ(c.observe(round(2 * kGiB, 5 * kMs, 2200 * kMs)), Advice::kGiveUp);
  EXPECT_EQ(c.estimate(), 160 * kMs);
}

TEST(Convergence, MoveAbortsIfTheLimitIsLoweredBelowTheOtherPauseTerms) {
  Convergence c(
      {.max_downtime = 200 * kMs, .switch_anyway = false, .fixed_cost = 90 * kMs, .beside = 70 * kMs}, 1e9);
  EXPECT_EQ(c.observe(round(2 * kGiB, 5 * kMs, 2200 * kMs)), Advice::kContinue);
  c.set_max_downtime(30 * kMs);
  EXPECT_EQ(c.observe(round(200'000'000, 5 * kMs, 200 * kMs)), Advice::kGiveUp);
}

TEST(Convergence, CopyShorterThanTheConcurrentWorkDoesNotExtendTheEstimate) {
  Convergence c({.max_downtime = 100 * kMs, .fixed_cost = 5 * kMs, .beside = 60 * kMs}, 1e9);
  c.observe(round(2 * kGiB, 50 * kMs, 2200 * kMs));
  EXPECT_EQ(c.observe(round(40'000'000, 30 * kMs, 90 * kMs)), Advice::kSwitch);
  EXPECT_EQ(c.estimate(), 65 * kMs);
}

TEST(Convergence, HandoverBeginsAfterOneRoundIfAllowedWhenTheOtherTermsExceedTheLimit) {
  RoundObservation first = round(2 * kGiB, 5 * kMs, 2200 * kMs);
  first.sampled_dirty_bytes = 40'000'000;
  Convergence c({.max_downtime = 30 * kMs, .fixed_cost = 90 * kMs, .beside = 70 * kMs}, 1e9);
  EXPECT_EQ(c.observe(first), Advice::kSwitchAnyway);
  EXPECT_EQ(c.estimate(), 160 * kMs);
}

TEST(Convergence, StopCopyOverTheLimitAbortsIfTheHandoverIsNotAllowed) {
  for (const bool anyway : {true, false}) {
    Convergence c({.max_downtime = 1000 * kMs, .switch_anyway = anyway, .fixed_cost = 90 * kMs}, 1e9);
    EXPECT_EQ(c.evaluate_stop_copy(2'000'000'000), anyway ? Advice::kSwitchAnyway : Advice::kGiveUp);
    EXPECT_EQ(c.estimate(), 2090 * kMs);
  }
  Convergence c({.max_downtime = 1000 * kMs, .switch_anyway = false}, 1e9);
  EXPECT_EQ(c.evaluate_stop_copy(500'000'000), Advice::kSwitch);
}

TEST(Convergence, ALongerRoundIncreasesTheDirtyBytes) {
  Convergence c({.max_downtime = 1}, 1e9);
  c.observe(round(2 * kGiB, 10 * kMs, 100 * kMs));
  c.observe(round(100 * kMiB, 10 * kMs, 300 * kMs));
  EXPECT_EQ(c.remaining_bytes(), 300 * kMiB);
  c.observe(round(200 * kMiB, 10 * kMs, 100 * kMs));
  EXPECT_EQ(c.remaining_bytes(), 200 * kMiB)
      << "a shorter round must not promise less: hot data is rewritten whole";
}

TEST(Convergence, ShrinkingRoundsContinue) {
  Convergence c({.max_downtime = 1 * kMs}, 1e9);
  std::uint64_t dirty = 2 * kGiB;
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(c.observe(round(dirty, kMs / 2, static_cast<Nanos>(dirty))), Advice::kContinue) << i;
    dirty /= 2;
  }
}

TEST(Convergence, RoundsThatStopShrinkingBeginTheHandoverOrAbortBySetting) {
  for (const bool anyway : {true, false}) {
    Convergence c({.max_downtime = 1 * kMs, .switch_anyway = anyway}, 1e9);
    c.observe(round(2 * kGiB, kMs, 2000 * kMs));
    EXPECT_EQ(c.observe(round(500 * kMiB, kMs, 500 * kMs)), Advice::kContinue);
    EXPECT_EQ(c.observe(round(500 * kMiB, kMs, 500 * kMs)), Advice::kContinue);
    EXPECT_EQ(c.observe(round(500 * kMiB, kMs, 500 * kMs)), anyway ? Advice::kSwitchAnyway : Advice::kGiveUp);
  }
}

TEST(Convergence, RoundsContinueUntilARoundIsAsGoodAsTheBestRound) {
  Convergence c({.max_downtime = 1 * kMs}, 1e9);
  c.observe(round(2 * kGiB, kMs, 2000 * kMs));
  c.observe(round(100 * kMiB, kMs, 500 * kMs));
  c.observe(round(400 * kMiB, kMs, 500 * kMs));
  EXPECT_EQ(c.observe(round(500 * kMiB, kMs, 500 * kMs)), Advice::kContinue);
  EXPECT_EQ(c.observe(round(460 * kMiB, kMs, 500 * kMs)), Advice::kContinue);
  EXPECT_EQ(c.observe(round(105 * kMiB, kMs, 500 * kMs)), Advice::kContinue) << "that one shrank";
}

TEST(Convergence, WaitForABetterRoundIsLimited) {
  Convergence c({.max_downtime = 1 * kMs}, 1e9);
  c.observe(round(2 * kGiB, kMs, 2000 * kMs));
  c.observe(round(100 * kMiB, kMs, 500 * kMs));
  int rounds = 0;
  while (c.observe(round(400 * kMiB, kMs, 500 * kMs)) == Advice::kContinue) ASSERT_LT(++rounds, 20);
  EXPECT_GT(rounds, 2);
}

TEST(Convergence, MaxRoundsEndsTheRounds) {
  for (const bool anyway : {true, false}) {
    Convergence c({.max_downtime = 1, .max_rounds = 3, .switch_anyway = anyway}, 1e9);
    EXPECT_EQ(c.observe(round(2 * kGiB, kMs, 2000 * kMs)), Advice::kContinue);
    EXPECT_EQ(c.observe(round(500 * kMiB, kMs, 500 * kMs)), Advice::kContinue);
    EXPECT_EQ(c.observe(round(100 * kMiB, kMs, 500 * kMs)), anyway ? Advice::kSwitchAnyway : Advice::kGiveUp);
  }
  Convergence one({.max_downtime = 1, .max_rounds = 1}, 1e9);
  EXPECT_EQ(one.observe(round(2 * kGiB, kMs, 2000 * kMs)), Advice::kSwitchAnyway);
}

TEST(Convergence, LimitMayChangeBetweenRounds) {
  Convergence c({.max_downtime = 1 * kMs}, 1e9);
  c.observe(round(2 * kGiB, kMs, 2000 * kMs));
  EXPECT_EQ(c.observe(round(100 * kMiB, kMs, 500 * kMs)), Advice::kContinue);
  c.set_max_downtime(1000 * kMs);
  EXPECT_EQ(c.observe(round(100 * kMiB, kMs, 500 * kMs)), Advice::kSwitch);
}

TEST(Convergence, LastRateIsKeptAfterARoundTooShortToMeasure) {
  Convergence c({}, 5e8);
  c.observe(round(2 * kGiB, kMs, 2000 * kMs, 2e9));
  c.observe(round(1000, kMs, 2 * kMs, 0));
  EXPECT_DOUBLE_EQ(c.throughput(), 2e9);
}

TEST(Convergence, EtaIsUnknownIfTheJobWritesFasterThanTheLink) {
  Convergence c({.max_downtime = 1}, 1e9);
  c.observe(round(2 * kGiB, kMs, 100 * kMs));
  c.observe(round(500 * kMiB, kMs, 100 * kMs));
  EXPECT_FALSE(c.eta().has_value());
}

TEST(Convergence, AnEstimateEqualToTheLimitIsWithinTheLimit) {
  Convergence c({.max_downtime = 45 * kMs, .fixed_cost = 5 * kMs}, 1e9);
  c.observe(round(2 * kGiB, 50 * kMs, 2200 * kMs));
  EXPECT_EQ(c.observe(round(40'000'000, 30 * kMs, 90 * kMs)), Advice::kSwitch);
}

TEST(Convergence, DirtyBytesAreLimitedByTheTotalSize) {
  Convergence c({.max_downtime = 1}, 1e9);
  c.observe(round(2 * kGiB, 10 * kMs, 100 * kMs));
  c.observe(round(1 * kGiB, 10 * kMs, 900 * kMs));
  EXPECT_EQ(c.remaining_bytes(), 2 * kGiB);
}

TEST(Convergence, EtaIncludesConcurrentWritesAndTheLastScan) {
  Convergence c({.max_downtime = 1}, 1e9);
  c.observe(round(2 * kGiB, 50 * kMs, 1000 * kMs));
  c.observe(round(500'000'000, 50 * kMs, 1000 * kMs));  // chunks change half as fast as they are sent
  EXPECT_EQ(c.eta(), 1000 * kMs + 50 * kMs);
}

TEST(Convergence, RoundAfterTheDecisionRefreshesTheEstimate) {
  Convergence c({.max_downtime = 100 * kMs, .switch_anyway = false, .fixed_cost = 5 * kMs}, 1e9);
  c.observe(round(2 * kGiB, 50 * kMs, 2200 * kMs));
  c.observe(round(40'000'000, 30 * kMs, 900 * kMs, 1e8));  // other traffic shared the link
  EXPECT_EQ(c.estimate(), 405 * kMs);
  EXPECT_TRUE(c.fits_without_copy());
  c.refresh(round(50'000'000, 30 * kMs, 90 * kMs, 1e9));
  EXPECT_EQ(c.estimate(), 55 * kMs);
  c.refresh(round(20'000'000, 30 * kMs, 5 * kMs, 0));
  EXPECT_EQ(c.estimate(), 35 * kMs) << "a round without a rate keeps the last one; the scan binds";
  EXPECT_FALSE(Convergence({.max_downtime = 4 * kMs, .fixed_cost = 5 * kMs}, 1e9).fits_without_copy());
}

}  // namespace
}  // namespace ckpt::engine
