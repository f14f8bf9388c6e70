// SPDX-License-Identifier: Apache-2.0
#include "agent/pause_estimate.h"

#include <gtest/gtest.h>

namespace ckpt::agent {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr Nanos kMs = kNanosPerMs;

PauseWork process(std::uint64_t bytes) {
  PauseWork work(PauseKind::kProcess);
  work.add(PauseTerm::kQuiesce).add(PauseTerm::kContextSave).add(PauseTerm::kDump, bytes);
  work.add(PauseTerm::kCommit).add(PauseTerm::kHostRestore, bytes).add(PauseTerm::kResume).save_beside_copy();
  return work;
}

wire::PauseNumbers all_took(Nanos each) {
  wire::PauseNumbers took;
  took.all.fill(each);
  return took;
}

TEST(PauseCosts, OneMeasurementOutweighsWhatWasAssumed) {
  PauseCosts costs;
  costs.learn(PauseKind::kProcess, PauseTerm::kDump, 100 * kMiB, 900 * kMs);
  const auto at = costs.line(PauseKind::kProcess, PauseTerm::kDump).at(100 * kMiB);
  EXPECT_NEAR(static_cast<double>(at), 900.0 * kMs, 100.0 * kMs);
}

TEST(PauseCosts, TwoSizesGiveBaseAndRate) {
  PauseCosts costs;
  for (int i = 0; i < 5; ++i) {
    costs.learn(PauseKind::kProcess, PauseTerm::kDump, 20 * kMiB, 70 * kMs);
    costs.learn(PauseKind::kProcess, PauseTerm::kDump, 1000 * kMiB, 2030 * kMs);
  }
  const auto line = costs.line(PauseKind::kProcess, PauseTerm::kDump);
  EXPECT_NEAR(static_cast<double>(line.at(500 * kMiB)), 1030.0 * kMs, 50.0 * kMs);
}

TEST(PauseCosts, ManySmallPausesDoNotWashAwayALargeOne) {
  PauseCosts costs;
  costs.learn(PauseKind::kProcess, PauseTerm::kDump, 1024 * kMiB, 5000 * kMs);
  for (int i = 0; i < 100; ++i) costs.learn(PauseKind::kProcess, PauseTerm::kDump, 20 * kMiB, 100 * kMs);
  const auto at = costs.line(PauseKind::kProcess, PauseTerm::kDump).at(1024 * kMiB);
  EXPECT_NEAR(static_cast<double>(at), 5000.0 * kMs, 500.0 * kMs);
}

TEST(PauseCosts, OneOutlierAmongManyCountsLittle) {
  PauseCosts costs;
  for (int i = 0; i < 4; ++i) costs.learn(PauseKind::kSwap, PauseTerm::kContextSave, 0, 20 * kMs);
  costs.learn(PauseKind::kSwap, PauseTerm::kContextSave, 0, 900 * kMs);
  EXPECT_LT(costs.line(PauseKind::kSwap, PauseTerm::kContextSave).at(0), 30 * kMs);
}

TEST(PauseCosts, AreReadBackAsTheyWereWritten) {
  PauseCosts costs;
  costs.learn(PauseKind::kSwap, PauseTerm::kCommit, 0, 33 * kMs);
  const auto again = PauseCosts::decode(costs.encode());
  ASSERT_TRUE(again);
  EXPECT_EQ(again.assume_value().line(PauseKind::kSwap, PauseTerm::kCommit).base_ns,
            costs.line(PauseKind::kSwap, PauseTerm::kCommit).base_ns);
  auto cut = costs.encode();
  cut.pop_back();
  EXPECT_FALSE(PauseCosts::decode(cut));
}

TEST(PauseEstimate, HostMemoryAndContextOfAFirstMoveArePartOfIt) {
  const PauseCosts costs;
  const PauseLines lines = costs.lines(PauseKind::kProcess);
  const auto small = estimate_pause(process(20 * kMiB), lines, lines, std::nullopt);
  const auto large = estimate_pause(process(1024 * kMiB), lines, lines, std::nullopt);
  EXPECT_GT(small.facts.ns[PauseTerm::kContextSave], 0);
  EXPECT_GT(small.facts.ns[PauseTerm::kHostRestore], 0);
  EXPECT_GT(large.total(), small.total() + 500 * kMs);
  EXPECT_EQ(small.facts.ns[PauseTerm::kFill], 0) << "not part of this way";
}

TEST(PauseEstimate, TheJobsOwnLastPauseComesBeforeTheNodesLines) {
  const PauseLines lines = PauseCosts().lines(PauseKind::kProcess);
  wire::PauseFacts last;
  last.kind = PauseKind::kProcess;
  last.ns = all_took(7 * kMs);
  last.bytes[PauseTerm::kDump] = last.bytes[PauseTerm::kHostRestore] = 20 * kMiB;
  EXPECT_EQ(estimate_pause(process(20 * kMiB), lines, lines, last).total(), 6 * 7 * kMs);
  const auto grown = estimate_pause(process(120 * kMiB), lines, lines, last);
  EXPECT_EQ(grown.facts.ns[PauseTerm::kDump],
            7 * kMs + lines[static_cast<std::size_t>(PauseTerm::kDump)].grown(100 * kMiB));
  last.kind = PauseKind::kSwap;
  EXPECT_EQ(estimate_pause(process(kMiB), lines, lines, last).total(),
            estimate_pause(process(kMiB), lines, lines, std::nullopt).total());
}

TEST(PauseEstimate, TheTargetsOwnLinesCountForWhatItDoes) {
  const PauseLines source = PauseCosts().lines(PauseKind::kProcess);
  PauseLines target = source;
  target[static_cast<std::size_t>(PauseTerm::kHostRestore)] = {1000 * kMs, 0};
  target[static_cast<std::size_t>(PauseTerm::kDump)] = {5000 * kMs, 0};
  const auto estimate = estimate_pause(process(kMiB), source, target, std::nullopt);
  EXPECT_EQ(estimate.facts.ns[PauseTerm::kHostRestore], 1000 * kMs);
  EXPECT_LT(estimate.facts.ns[PauseTerm::kDump], 1000 * kMs);
}

TEST(PauseEstimate, CopyLongerThanTheSaveBesideItCountsAsFinal) {
  const PauseLines lines = PauseCosts().lines(PauseKind::kProcess);
  const auto estimate = estimate_pause(process(kMiB), lines, lines, std::nullopt);
  EXPECT_EQ(estimate.beside,
            estimate.facts.ns[PauseTerm::kContextSave] + estimate.facts.ns[PauseTerm::kDump]);
  EXPECT_EQ(estimate.with_copy(estimate.total()).ns.total(), estimate.total());
  EXPECT_EQ(estimate.with_copy(estimate.total() + 9 * kMs).ns[PauseTerm::kFinal], 9 * kMs);
}

TEST(PauseEstimate, TooLongNamesTheLongestTermAndWhatHelps) {
  wire::PauseFacts pause;
  pause.ns = all_took(2 * kMs);
  pause.ns[PauseTerm::kDump] = 60 * kMs;
  pause.ns[PauseTerm::kHostRestore] = 80 * kMs;
  pause.ns[PauseTerm::kFinal] = 90 * kMs;
  const std::string text = too_long(pause, 30 * kMs);
  EXPECT_NE(text.find("about 246 ms, the limit is 30 ms"), std::string::npos) << text;
  EXPECT_NE(text.find("longest term is host with 140 ms"), std::string::npos) << text;
  EXPECT_NE(text.find("host memory"), std::string::npos) << text;
}

TEST(PauseEstimate, EachSideLearnsItsOwnTerms) {
  PauseCosts costs;
  const PauseWork work = process(0);
  const auto before = costs.lines(PauseKind::kProcess);
  learn_pause(costs, work, all_took(400 * kMs), true);
  const auto after = costs.lines(PauseKind::kProcess);
  EXPECT_EQ(after[static_cast<std::size_t>(PauseTerm::kDump)].base_ns,
            before[static_cast<std::size_t>(PauseTerm::kDump)].base_ns);
  EXPECT_GT(after[static_cast<std::size_t>(PauseTerm::kHostRestore)].at(0), 300 * kMs);
  EXPECT_EQ(after[static_cast<std::size_t>(PauseTerm::kFill)].base_ns,
            before[static_cast<std::size_t>(PauseTerm::kFill)].base_ns)
      << "not part of this way";
}

}  // namespace
}  // namespace ckpt::agent
