// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/migration/source_measures.h"

#include <gtest/gtest.h>

namespace ckpt::mover {
namespace {

constexpr Nanos kSecond = 1'000'000'000;

engine::RoundReport round_report(std::uint32_t round, std::uint64_t dirty) {
  engine::RoundReport report;
  report.round = round;
  report.state_bytes = 1000;
  report.dirty_bytes = dirty;
  report.begin_ns = kSecond;
  report.end_ns = 3 * kSecond;
  report.scan_ns = kSecond;
  return report;
}

TEST(SourceMeasures, FirstRoundIsCountedAsStateAndNotAsDirty) {
  SourceMeasures measures;
  measures.count_round(round_report(1, 1000));
  measures.count_round(round_report(2, 70));
  measures.count_final(round_report(3, 5), 9, 0);
  const auto counters = measures.counters({}, 0);
  EXPECT_EQ(counters.rounds, 3U);
  EXPECT_EQ(counters.state_bytes, 1000U);
  EXPECT_EQ(counters.dirty_bytes, 75U);
  EXPECT_EQ(counters.host_bytes, 9U);
  EXPECT_EQ(measures.last_round_time(), 2 * kSecond);
}

TEST(SourceMeasures, BytesOfAnInterruptedRoundAreDirtyAndTheRoundIsNotCounted) {
  SourceMeasures measures;
  auto cut = round_report(1, 0);
  cut.cut = true;
  cut.sent_bytes = 40;
  measures.count_round(cut);  // nothing has become dirty before the first round
  EXPECT_EQ(measures.rounds(), 0U);
  EXPECT_EQ(measures.last_round_time(), 0);
  EXPECT_EQ(measures.counters({}, 0).dirty_bytes, 0U);
  measures.count_round(round_report(1, 1000));
  measures.count_round(cut);
  EXPECT_EQ(measures.rounds(), 1U);
  EXPECT_EQ(measures.counters({}, 0).dirty_bytes, 40U);
}

TEST(SourceMeasures, HighestRateIsReported) {
  SourceMeasures measures;
  auto fast = round_report(1, 0);
  fast.scan_ns = kSecond / 2;
  fast.drain_bytes_per_second = 300;
  measures.count_round(fast);
  auto slow = round_report(2, 0);
  slow.drain_bytes_per_second = 100;
  measures.count_round(slow);
  auto counters = measures.counters({}, 0);
  EXPECT_EQ(counters.scan_bytes_per_second, 2000U);
  EXPECT_EQ(counters.link_bytes_per_second, 300U);
  auto last = round_report(3, 0);
  last.wire_bytes = 800;
  last.first_copy_ns = 2 * kSecond;
  measures.count_final(last, 0, 0);
  EXPECT_EQ(measures.link_rate(), 800U);
}

TEST(SourceMeasures, FinalRoundCountsTheSmallerOfFoundAndSentBytes) {
  SourceMeasures measures;
  auto last = round_report(1, 500);
  last.wire_bytes = 200;
  last.first_copy_ns = 2 * kSecond;
  measures.count_final(last, 0, 0);
  auto counters = measures.counters({}, 7);
  EXPECT_EQ(counters.final_bytes, 200U);
  EXPECT_EQ(counters.scan_ns, kSecond);
  EXPECT_EQ(counters.copy_ns, kSecond);
  EXPECT_EQ(counters.estimate_ns, 7);
  SourceMeasures unchanged;
  auto nothing = round_report(1, 0);  // a report with no data but host state
  nothing.wire_bytes = 50;
  unchanged.count_final(nothing, 50, 7);
  counters = unchanged.counters({}, 0);
  EXPECT_EQ(counters.copy_ns, 0);
  EXPECT_EQ(counters.link_bytes_per_second, 0U);
}

TEST(SourceMeasures, AnswerWithoutAClockOffsetIsTimedByItsArrival) {
  engine::Verdict verdict;
  verdict.sent_ns = kSecond;
  verdict.compared_ns = 2 * kSecond;
  verdict.heard_ns = 3 * kSecond;
  EXPECT_EQ(SourceMeasures().verified_ns(verdict), 3 * kSecond);
}

}  // namespace
}  // namespace ckpt::mover
