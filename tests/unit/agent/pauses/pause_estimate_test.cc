// SPDX-License-Identifier: Apache-2.0
#include "agent/pauses/pause_estimate.h"

#include <gtest/gtest.h>

#include "agent/pauses/rehearsal.h"

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

TEST(PauseCosts, MeasurementOverridesTheDefaults) {
  PauseCosts costs;
  costs.learn(PauseKind::kProcess, PauseTerm::kDump, 100 * kMiB, 900 * kMs);
  const auto at = costs.line(PauseKind::kProcess, PauseTerm::kDump).at(100 * kMiB);
  EXPECT_NEAR(static_cast<double>(at), 900.0 * kMs, 100.0 * kMs);
}

TEST(PauseCosts, TwoSizesDetermineBaseAndRate) {
  PauseCosts costs;
  for (int i = 0; i < 5; ++i) {
    costs.learn(PauseKind::kProcess, PauseTerm::kDump, 20 * kMiB, 70 * kMs);
    costs.learn(PauseKind::kProcess, PauseTerm::kDump, 1000 * kMiB, 2030 * kMs);
  }
  const auto line = costs.line(PauseKind::kProcess, PauseTerm::kDump);
  EXPECT_NEAR(static_cast<double>(line.at(500 * kMiB)), 1030.0 * kMs, 50.0 * kMs);
}

TEST(PauseCosts, ManySmallPausesDoNotOutweighALargePause) {
  PauseCosts costs;
  costs.learn(PauseKind::kProcess, PauseTerm::kDump, 1024 * kMiB, 5000 * kMs);
  for (int i = 0; i < 100; ++i) costs.learn(PauseKind::kProcess, PauseTerm::kDump, 20 * kMiB, 100 * kMs);
  const auto at = costs.line(PauseKind::kProcess, PauseTerm::kDump).at(1024 * kMiB);
  EXPECT_NEAR(static_cast<double>(at), 5000.0 * kMs, 500.0 * kMs);
}

TEST(PauseCosts, OutlierAmongManyMeasurementsHasLittleWeight) {
  PauseCosts costs;
  for (int i = 0; i < 4; ++i) costs.learn(PauseKind::kSwap, PauseTerm::kContextSave, 0, 20 * kMs);
  costs.learn(PauseKind::kSwap, PauseTerm::kContextSave, 0, 900 * kMs);
  EXPECT_LT(costs.line(PauseKind::kSwap, PauseTerm::kContextSave).at(0), 30 * kMs);
}

TEST(PauseCosts, CostsAreDecodedAsEncoded) {
  PauseCosts costs;
  costs.learn(PauseKind::kSwap, PauseTerm::kCommit, 0, 33 * kMs);
  const auto again = PauseCosts::decode(costs.encode());
  ASSERT_TRUE(again);
  EXPECT_EQ(again->line(PauseKind::kSwap, PauseTerm::kCommit).base_ns,
            costs.line(PauseKind::kSwap, PauseTerm::kCommit).base_ns);
  auto cut = costs.encode();
  cut.pop_back();
  EXPECT_FALSE(PauseCosts::decode(cut));
}

TEST(PauseCosts, MeasurementsOfOneSizeChangeTheRateByItsShare) {
  PauseCosts costs;
  costs.assume(PauseKind::kProcess, PauseTerm::kDump, {100 * kMs, 1 * kMs});
  costs.learn(PauseKind::kProcess, PauseTerm::kDump, 1 * kMiB, 400 * kMs);
  EXPECT_LT(costs.line(PauseKind::kProcess, PauseTerm::kDump).ns_per_mib, 2 * kMs) << "the base takes longer";
  PauseCosts other;
  other.assume(PauseKind::kProcess, PauseTerm::kDump, {100 * kMs, 1 * kMs});
  other.learn(PauseKind::kProcess, PauseTerm::kDump, 9900 * kMiB, 40000 * kMs);
  EXPECT_GT(other.line(PauseKind::kProcess, PauseTerm::kDump).ns_per_mib, 3 * kMs) << "the rate is lower";
}

// With 1,500 threads, the node takes three times as long per thread as a common server.
TEST(PauseCosts, ThreadCostsUseTheMeasuredRateOfTheNode) {
  PauseCosts costs;
  costs.assume(PauseKind::kProcess, PauseTerm::kDump, {100 * kMs, 1 * kMs});
  const Nanos items = 750 * kMs;
  PauseWork many(PauseKind::kProcess);
  many.add(PauseTerm::kDump, 10 * kMiB, items);
  const auto expected = [&costs](const PauseWork& work) {
    const PauseLines lines = costs.lines(PauseKind::kProcess);
    return estimate_pause(work, lines, lines, {}).total();
  };
  EXPECT_EQ(expected(many), 860 * kMs) << "as on a common server";
  wire::PauseNumbers took;
  took[PauseTerm::kDump] = 110 * kMs + 3 * items;
  learn_pause(costs, many, took, false);
  EXPECT_NEAR(static_cast<double>(expected(many)), (110.0 + 3 * 750) * kMs, 50.0 * kMs);
  PauseWork few(PauseKind::kProcess);
  few.add(PauseTerm::kDump, 10 * kMiB, 2 * kMs);
  EXPECT_NEAR(static_cast<double>(expected(few)), 116.0 * kMs, 10.0 * kMs)
      << "it has no part in the threads' time";
  const auto again = PauseCosts::decode(costs.encode());
  ASSERT_TRUE(again);
  EXPECT_EQ(again->line(PauseKind::kProcess, PauseTerm::kDump).items_permille,
            costs.line(PauseKind::kProcess, PauseTerm::kDump).items_permille);
}

RehearsalFacts rehearsal() {
  RehearsalFacts facts;
  for (const std::uint64_t mib : {16, 128}) {
    RehearsedProcess& process = facts.processes.emplace_back();
    process.bytes = mib * kMiB;
    process.restored_bytes = std::min<std::uint64_t>(mib, 32) * kMiB;
    process.dump_ns = static_cast<Nanos>(100 + 2 * mib) * kMs;
    process.restore_ns = mib == 16 ? 90 * kMs : 60 * kMs;  // the first restore was slower by chance
  }
  facts.record_ns = 5 * kMs;
  facts.memory = {4'000'000'000, 1'000'000'000};
  return facts;
}

TEST(PauseCosts, RehearsedCostsApplyUntilMovesProvideMoreMeasurements) {
  PauseCosts costs;
  record_rehearsal(costs, rehearsal());
  const auto dump = costs.line(PauseKind::kProcess, PauseTerm::kDump);
  EXPECT_NEAR(static_cast<double>(dump.at(1024 * kMiB)), (100.0 + 2048.0) * kMs, 1.0 * kMs);
  const auto restore = costs.line(PauseKind::kProcess, PauseTerm::kHostRestore);
  EXPECT_NEAR(static_cast<double>(restore.at(24 * kMiB)), 75.0 * kMs, 1.0 * kMs) << "the mean of both";
  EXPECT_NEAR(static_cast<double>(restore.ns_per_mib), 1.05 * kMs, 0.01 * kMs) << "of new memory";
  EXPECT_GE(costs.line(PauseKind::kSwap, PauseTerm::kCommit).base_ns, 5 * kMs);
  // This dump took twice as long as in the rehearsal.
  costs.learn(PauseKind::kProcess, PauseTerm::kDump, 200 * kMiB, 1000 * kMs);
  EXPECT_NEAR(static_cast<double>(costs.line(PauseKind::kProcess, PauseTerm::kDump).at(200 * kMiB)),
              1000.0 * kMs, 60.0 * kMs);
}

TEST(PauseCosts, RehearsedThreadsDetermineTheRateOfTheNode) {
  RehearsalFacts facts = rehearsal();
  RehearsedProcess many = facts.processes.front();
  many.dump_items = 200 * kMs;
  many.restore_items = 100 * kMs;
  many.dump_ns += 500 * kMs;
  many.restore_ns = 75 * kMs + 400 * kMs;
  facts.processes.push_back(many);
  PauseCosts costs;
  record_rehearsal(costs, facts);
  const auto dump = costs.line(PauseKind::kProcess, PauseTerm::kDump);
  EXPECT_NEAR(static_cast<double>(dump.at(1024 * kMiB)), (100.0 + 2048.0) * kMs, 1.0 * kMs)
      << "bytes are bytes";
  EXPECT_NEAR(dump.items_permille, 2500, 30);
  EXPECT_NEAR(costs.line(PauseKind::kAdoptedProcess, PauseTerm::kHostRestore).items_permille, 4000, 200);
}

TEST(PauseCosts, RehearsalIsDecodedAsEncoded) {
  PauseCosts costs;
  record_rehearsal(costs, rehearsal());
  costs.learn_rehearsal("1.0, CRIU 4", "none");
  const auto again = PauseCosts::decode(costs.encode());
  ASSERT_TRUE(again);
  EXPECT_EQ(again->line(PauseKind::kProcess, PauseTerm::kDump).ns_per_mib,
            costs.line(PauseKind::kProcess, PauseTerm::kDump).ns_per_mib);
  EXPECT_EQ(again->memory().write, 1'000'000'000U);
  EXPECT_EQ(again->rehearsed(), "1.0, CRIU 4");
  EXPECT_EQ(again->problem(), "none");
}

TEST(Rehearsal, ReportOfTheHelperIsValidatedAndParsed) {
  const auto json = to_json(rehearsal());
  const auto same = parse_rehearsal(json);
  ASSERT_TRUE(same);
  EXPECT_EQ(to_json(*same), json);
  auto bad = json;
  bad["processes"][0]["dump_ns"] = -1;
  EXPECT_FALSE(parse_rehearsal(bad));
  bad = json;
  bad.erase("record_ns");
  EXPECT_FALSE(parse_rehearsal(bad));
  bad["processes"] = 7;
  EXPECT_FALSE(parse_rehearsal(bad));
}

TEST(Rehearsal, ProcessesOfEqualSizeDetermineNoRate) {
  RehearsalFacts facts = rehearsal();
  facts.processes.back() = facts.processes.front();
  PauseCosts costs;
  record_rehearsal(costs, facts);
  EXPECT_EQ(costs.line(PauseKind::kProcess, PauseTerm::kDump).base_ns,
            PauseCosts().line(PauseKind::kProcess, PauseTerm::kDump).base_ns);
}

TEST(PauseCosts, UpperBoundUsesNoRateBelowTheMeasuredRate) {
  EXPECT_EQ(faster(1000, 5000, 1'000'000'000), 5000U);
  EXPECT_EQ(faster(9000, 5000, 1'000'000'000), 9000U);
  EXPECT_EQ(faster(0, 5000, 1'000'000'000), 0U) << "nothing to compare with";
}

TEST(PauseEstimate, EstimateIncludesHostMemoryAndTheContextOfAFirstMove) {
  const PauseCosts costs;
  const PauseLines lines = costs.lines(PauseKind::kProcess);
  const auto small = estimate_pause(process(20 * kMiB), lines, lines, std::nullopt);
  const auto large = estimate_pause(process(1024 * kMiB), lines, lines, std::nullopt);
  EXPECT_GT(small.facts.ns[PauseTerm::kContextSave], 0);
  EXPECT_GT(small.facts.ns[PauseTerm::kHostRestore], 0);
  EXPECT_GT(large.total(), small.total() + 500 * kMs);
  EXPECT_EQ(small.facts.ns[PauseTerm::kFill], 0) << "not part of this way";
}

TEST(PauseEstimate, LastPauseOfTheJobOverridesTheRatesOfTheNode) {
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

TEST(PauseEstimate, LastPauseWithAFarLargerDumpWeighsLessThanTheRates) {
  const PauseLines lines = PauseCosts().lines(PauseKind::kProcess);
  wire::PauseFacts last;  // the last pause was a stop-copy
  last.kind = PauseKind::kProcess;
  last.ns = all_took(14'000 * kMs);
  last.bytes[PauseTerm::kDump] = last.bytes[PauseTerm::kHostRestore] = 3072 * kMiB;
  const auto live = estimate_pause(process(4 * kMiB), lines, lines, last);
  EXPECT_EQ(live.facts.ns[PauseTerm::kDump], lines[static_cast<std::size_t>(PauseTerm::kDump)].at(4 * kMiB));
  EXPECT_EQ(live.facts.ns[PauseTerm::kQuiesce], 14'000 * kMs) << "its size is the same";
}

TEST(PauseEstimate, CommunicatorEstimateUsesTheLastMoveOfTheRanks) {
  PauseCosts costs;
  PauseWork work(PauseKind::kCooperative);
  work.add(PauseTerm::kCommit).add(PauseTerm::kCommunicators, 0, 0, 1500 * kMs);
  learn_pause(costs, work, all_took(9000 * kMs), true);
  wire::PauseFacts last;
  last.ns = all_took(0);  // the communicators were created before the last pause
  const PauseLines lines = costs.lines(PauseKind::kCooperative);
  EXPECT_EQ(estimate_pause(work, lines, lines, last).facts.ns[PauseTerm::kCommunicators], 1500 * kMs);
  EXPECT_EQ(estimate_pause(work, lines, lines, {}).facts.ns[PauseTerm::kCommunicators], 1500 * kMs);
}

TEST(PauseEstimate, TargetRatesApplyToTheTermsOfTheTarget) {
  const PauseLines source = PauseCosts().lines(PauseKind::kProcess);
  PauseLines target = source;
  target[static_cast<std::size_t>(PauseTerm::kHostRestore)] = {1000 * kMs, 0};
  target[static_cast<std::size_t>(PauseTerm::kDump)] = {5000 * kMs, 0};
  const auto estimate = estimate_pause(process(kMiB), source, target, std::nullopt);
  EXPECT_EQ(estimate.facts.ns[PauseTerm::kHostRestore], 1000 * kMs);
  EXPECT_LT(estimate.facts.ns[PauseTerm::kDump], 1000 * kMs);
}

TEST(PauseEstimate, ExcessOfTheCopyOverTheConcurrentSaveBelongsToTheFinalTerm) {
  const PauseLines lines = PauseCosts().lines(PauseKind::kProcess);
  const auto estimate = estimate_pause(process(kMiB), lines, lines, std::nullopt);
  EXPECT_EQ(estimate.beside,
            estimate.facts.ns[PauseTerm::kContextSave] + estimate.facts.ns[PauseTerm::kDump]);
  EXPECT_EQ(estimate.with_copy(estimate.total(), estimate).ns.total(), estimate.total());
  EXPECT_EQ(estimate.with_copy(estimate.total() + 9 * kMs, estimate).ns[PauseTerm::kFinal], 9 * kMs);
}

TEST(PauseEstimate, CopyIsAddedToAnEstimateNewerThanTheMoverEstimate) {
  PauseCosts costs;
  const PauseLines lines = costs.lines(PauseKind::kProcess);
  const auto reported = estimate_pause(process(512 * kMiB), lines, lines, std::nullopt);
  const auto revised = estimate_pause(process(kMiB), lines, lines, std::nullopt);
  ASSERT_LT(revised.total(), reported.total());

  const auto hidden = revised.with_copy(reported.total(), reported);
  EXPECT_EQ(hidden.ns.total(), revised.total());

  const Nanos copy = reported.beside + 9 * kMs;
  const auto longer = revised.with_copy(reported.fixed() + copy, reported);
  EXPECT_EQ(longer.ns.total(), revised.fixed() + copy);
  EXPECT_EQ(longer.ns[PauseTerm::kDump], revised.facts.ns[PauseTerm::kDump]);
}

TEST(PauseEstimate, PauseOverTheLimitReportsTheLongestTermAndARemedy) {
  wire::PauseFacts pause;
  pause.ns = all_took(2 * kMs);
  pause.ns[PauseTerm::kDump] = 60 * kMs;
  pause.ns[PauseTerm::kHostRestore] = 80 * kMs;
  pause.ns[PauseTerm::kFinal] = 90 * kMs;
  const std::string text = too_long(pause, 30 * kMs);
  EXPECT_NE(text.find("about 248 ms, but the limit is 30 ms"), std::string::npos) << text;
  EXPECT_NE(text.find("longest term is host with 140 ms"), std::string::npos) << text;
  EXPECT_NE(text.find("host memory"), std::string::npos) << text;
}

TEST(PauseEstimate, EachSideLearnsOnlyItsOwnTerms) {
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
