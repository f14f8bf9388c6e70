// SPDX-License-Identifier: Apache-2.0
// Runs the gang commit with random faults: losses, repeats, reordering, delays, crashes, lost nodes, failed
// instances, aborts and full disks. One or two ranks move and up to two stay. After the faults end, no rank
// runs twice, two epochs never run, and no work is lost while a set of ranks is whole. In the end the old
// gang runs, or the new gang, or its image. Each deliberate mistake (Mutant) must be found. CKPT_FUZZ_SEED=n
// replays one seed with its trace; CKPT_FUZZ_RUNS=n sets the number of runs.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "tests/unit/libckpt/protocol/gang/gang_world.h"

namespace ckpt::gang::test {
namespace {

Timing fast() {
  Timing t;
  t.lease_term_ms = 2'000;
  t.lease_drift_ms = 100;
  t.lease_renew_ms = 600;
  t.poll_ms = 200;
  t.silence_ms = 1'000;
  t.pause_timeout_ms = 3'000;
  t.handover_timeout_ms = 2'000;
  t.migration_timeout_ms = 20'000;
  return t;
}

struct Outcome {
  std::string violation;
  bool moved = false;
  bool restored = false;
};

Party any_of(World& world) {
  const auto all = world.everyone();
  return all[world.random()() % all.size()];
}

void one_fault(World& world, int& losses) {
  const Party party = any_of(world);
  switch (world.random()() % 10) {
    case 0:
    case 1:
      return world.crash(party);
    case 2:
    case 3:
    case 4:
      for (const Party& down : world.everyone())
        if (world.random()() % 2 == 0) world.restart(down);
      return;
    case 5:
      return world.cut_off(party, world.random()() % 2 == 0);
    case 6:
      return world.cut(party, any_of(world), world.random()() % 2 == 0);
    case 7:
      return world.fail_record(party);
    case 8:
      if (losses > 0 && party != Party() && world.random()() % 4 == 0) {
        --losses;
        if (world.random()() % 2 == 0)
          world.kill_instance(party);
        else
          world.lose(party);
      }
      return;
    default:
      if (world.random()() % 12 == 0) world.abort_migration();
      if (world.random()() % 12 == 0) world.fail_next_resume();
      if (world.random()() % 3 == 0) world.finish(party);
      if (world.random()() % 8 == 0) world.lose_records();
  }
}

Outcome play(std::uint64_t seed, Mutant mutant, bool trace) {
  World world({.seed = seed,
               .chance = true,
               .mutant = mutant,
               .moved = static_cast<std::uint32_t>(1 + seed % 2),
               .staying = static_cast<std::uint32_t>(seed / 2 % 3),
               .overlaps = seed / 18 % 4 != 0,
               .timing = fast()});
  world.trace_on(trace);
  int losses = static_cast<int>(seed / 6 % 3);
  world.migrate();
  for (int i = 0; i < 900 && world.first_violation().empty(); ++i) {
    if (world.random()() % 40 == 0) one_fault(world, losses);
    if (!world.step()) world.run_for(100);
  }
  world.faults_end();
  world.run_for(120'000);
  Outcome outcome;
  outcome.violation = world.first_violation();
  if (outcome.violation.empty() && !world.goal())
    outcome.violation = "the gang does not run in the end: " + world.summary();
  if (outcome.violation.empty() && !world.is_settled())
    outcome.violation = "the migration stays open: " + world.summary();
  outcome.moved = world.runs_new();
  outcome.restored = world.is_restored();
  if (trace)
    for (const auto& line : world.take_trace()) std::cout << line << "\n";
  return outcome;
}

std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

TEST(GangFuzz, InvariantsHoldUnderRandomFaults) {
  if (const std::uint64_t seed = number_from("CKPT_FUZZ_SEED", 0); seed != 0) {
    const auto mutant = static_cast<Mutant>(number_from("CKPT_FUZZ_MUTANT", 0));
    EXPECT_EQ(play(seed, mutant, true).violation, "") << "seed " << seed;
    return;
  }
  const std::uint64_t runs = number_from("CKPT_FUZZ_RUNS", 4000);
  std::uint64_t moved = 0;
  std::uint64_t restored = 0;
  for (std::uint64_t seed = 1; seed <= runs; ++seed) {
    const Outcome outcome = play(seed, Mutant::kNone, false);
    moved += outcome.moved ? 1 : 0;
    restored += outcome.restored ? 1 : 0;
    ASSERT_EQ(outcome.violation, "") << "replay with CKPT_FUZZ_SEED=" << seed;
  }
  // The test is not vacuous: all three outcomes occur.
  EXPECT_GT(moved, runs / 10);
  EXPECT_GT(restored, 0U);
  EXPECT_GT(runs - moved - restored, runs / 10);
  std::cout << runs << " lives, " << moved << " moved, " << restored << " restored\n";
}

struct Mistake {
  Mutant mutant;
  const char* name;
};

class GangMistakes : public ::testing::TestWithParam<Mistake> {};

TEST_P(GangMistakes, InjectedMistakeIsFoundByTheFuzzer) {
  std::string violation;
  for (std::uint64_t seed = 1; seed <= 20'000 && violation.empty(); ++seed)
    violation = play(seed, GetParam().mutant, false).violation;
  EXPECT_NE(violation, "");
}

INSTANTIATE_TEST_SUITE_P(All, GangMistakes,
                         ::testing::Values(Mistake{Mutant::kReadyNotDurable, "ReadyNotDurable"},
                                           Mistake{Mutant::kHeldNotDurable, "HeldNotDurable"},
                                           Mistake{Mutant::kNoFence, "NoFence"},
                                           Mistake{Mutant::kGoEarly, "GoEarly"},
                                           Mistake{Mutant::kSwapAtCommitted, "SwapAtCommitted"},
                                           Mistake{Mutant::kReleaseAtGo, "ReleaseAtGo"},
                                           Mistake{Mutant::kRelinquishedIsVeto, "RelinquishedIsVeto"},
                                           Mistake{Mutant::kRestoreUnfenced, "RestoreUnfenced"},
                                           Mistake{Mutant::kOldAbortedEarly, "OldAbortedEarly"},
                                           Mistake{Mutant::kNotMadeYet, "NotMadeYet"},
                                           Mistake{Mutant::kFinishedIsDead, "FinishedIsDead"},
                                           Mistake{Mutant::kEndsLate, "EndsLate"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ckpt::gang::test
