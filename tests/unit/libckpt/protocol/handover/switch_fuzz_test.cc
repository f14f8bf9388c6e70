// SPDX-License-Identifier: Apache-2.0
// Runs the handover with random faults: losses, repeats, reordering, delays, crashes, a lost node, failing
// instances, aborts, full disks, and several migrations in a row. After the faults end, two instances never
// run, the last image is never freed, and in the end the job runs. Each deliberate mistake (Mutant) must be
// found. CKPT_FUZZ_SEED=n replays one seed with its trace; CKPT_FUZZ_RUNS=n sets the number of runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "tests/unit/libckpt/protocol/handover/switch_world.h"

namespace ckpt::migration::test {
namespace {

Timing fast() {
  Timing t;
  t.lease_term_ms = 2'000;
  t.lease_drift_ms = 100;
  t.lease_renew_ms = 600;
  t.lend_term_ms = 2'000;
  t.poll_ms = 200;
  t.silence_ms = 1'000;
  t.pause_timeout_ms = 3'000;
  t.handover_timeout_ms = 2'000;
  t.migration_timeout_ms = 20'000;
  return t;
}

struct Outcome {
  std::string violation;
  int moves = 0;
  int migrations = 0;
};

void one_fault(World& world, bool& node_lost, bool may_lose) {
  auto& random = world.random();
  const int node = static_cast<int>(random() % 3);
  for (int down = 0; down < 3; ++down)
    if (!world.up(down) && random() % 3 == 0) world.restart(down);
  switch (random() % 12) {
    case 0:
    case 1:
      world.crash(node);
      break;
    case 2:
    case 3:
    case 4:
      world.restart(node);
      break;
    case 5:
      world.cut(node, static_cast<int>((node + 1) % 3), true);
      break;
    case 6:
    case 7:
      world.cut(node, static_cast<int>((node + 1) % 3), false);
      break;
    case 8:
      world.abort_migration(world.last_migration(), random() % 2 == 0);
      break;
    case 9:
      if (random() % 2 == 0) world.kill_instance(node % 2);
      if (random() % 8 == 0) world.finish_instance(node % 2);
      break;
    case 10:
      world.fail_records(node, 1);
      break;
    case 11:
      if (may_lose && !node_lost && random() % 4 == 0 && node < 2) {
        world.lose(node);
        node_lost = true;
      }
      break;
    default:
      break;
  }
}

// Resolves the migrations at the surviving side. With store and node lost, only an operator can state that
// the other side is dead.
void resolve_at_the_survivor(World& world) {
  for (MigrationId id = 1; id <= world.last_migration(); ++id) {
    const auto* state = world.coordinator()->find(id);
    if (state == nullptr || !std::holds_alternative<coordinator::Forgotten>(state->phase)) continue;
    world.resolve(id, world.lost(world.node_of(id, Role::kSource)) ? Side::kTarget : Side::kSource);
  }
}

// Runs one seed. `loses_store`: the coordinator's store is lost or replaced by an older copy, once or twice.
Outcome play(std::uint64_t seed, Mutant mutant, bool trace, bool loses_store = false) {
  World world({.seed = seed, .chance = true, .mutant = mutant, .timing = fast()});
  world.trace_on(trace);
  Outcome outcome;
  bool node_lost = false;
  const bool may_lose = seed % 2 == 0;
  for (int i = 0; i < 1500 && world.first_violation().empty(); ++i) {
    const int from = world.job_node();
    if (!node_lost && world.random()() % 16 == 0 && world.migrate(from, 1 - from) != 0) ++outcome.migrations;
    if (world.random()() % 24 == 0) one_fault(world, node_lost, may_lose);
    if (loses_store && world.random()() % 500 == 0)
      world.lose_store(world.random()() % 2 == 0 ? SIZE_MAX : 1 + world.random()() % 4);
    if (!world.step()) world.run_for(100);
  }
  world.faults_end();
  world.run_for(60'000);
  if (node_lost) resolve_at_the_survivor(world);
  world.run_for(60'000);
  outcome.violation = world.first_violation();
  if (outcome.violation.empty() && !world.goal())
    outcome.violation = "the job does not run in the end: " + world.summary();
  const auto* last = world.coordinator()->find(world.last_migration());
  if (outcome.violation.empty() && last && !node_lost && !is_closed(*last) && !world.job_dead())
    outcome.violation = "the migration stays open: " + world.summary();
  outcome.moves = static_cast<int>(world.highest_run() - 1);
  if (trace)
    for (const auto& line : world.take_trace()) std::cout << line << "\n";
  return outcome;
}

std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

void play_many(bool loses_store) {
  if (const std::uint64_t seed = number_from("CKPT_FUZZ_SEED", 0); seed != 0) {
    const auto mutant = static_cast<Mutant>(number_from("CKPT_FUZZ_MUTANT", 0));
    EXPECT_EQ(play(seed, mutant, true, loses_store).violation, "") << "seed " << seed;
    return;
  }
  const std::uint64_t runs = number_from("CKPT_FUZZ_RUNS", 3000);
  int moves = 0;
  int migrations = 0;
  for (std::uint64_t seed = 1; seed <= runs; ++seed) {
    const Outcome outcome = play(seed, Mutant::kNone, false, loses_store);
    moves += outcome.moves;
    migrations += outcome.migrations;
    ASSERT_EQ(outcome.violation, "") << "replay with CKPT_FUZZ_SEED=" << seed;
  }
  // The test is not vacuous: most runs move the job.
  EXPECT_GT(moves, static_cast<int>(runs) / 2);
  EXPECT_GT(migrations, static_cast<int>(runs));
  std::cout << runs << " lives, " << migrations << " migrations, " << moves << " incarnations\n";
}

TEST(HandoverFuzz, InvariantsHoldUnderRandomFaults) {
  play_many(false);
}

TEST(HandoverFuzz, InvariantsHoldWhenTheCoordinatorLosesItsStore) {
  play_many(true);
}

// Returns a migration whose source has paused the job. From this point on nothing happens automatically.
MigrationId bring_to_barrier(World& world) {
  world.set_auto(false);
  const MigrationId id = world.migrate(0, 1);
  world.run_for(10);
  world.feed(id, Role::kSource, SourceEvent(SourceReady(Bytes{})));
  world.feed(id, Role::kTarget, TargetEvent(StandbyReady(Bytes{})));
  world.run_for(10);
  world.feed(id, Role::kSource, SourceEvent(FirstRoundDone{}));
  world.run_for(10);
  world.feed(id, Role::kSource, SourceEvent(PrecopyConverged{}));
  world.pause_job(0);
  world.feed(id, Role::kSource, SourceEvent(JobPaused{}));
  return id;
}

// Runs a case that is too rare for random runs. A target agent restarts, is queried, and states RELINQUISHED.
// Then a late PREPARE, Start and COMMIT of the same migration arrive while the coordinator has not received
// the statement.
std::string late_prepare(Mutant mutant) {
  World world({.seed = 1, .chance = false, .mutant = mutant, .timing = fast()});
  const MigrationId id = bring_to_barrier(world);
  world.hold("Resumed");
  world.crash(1);
  world.restart(1);
  world.inject(wire::CommitMessage(id, kJob, 1, Role::kSource, Role::kTarget, wire::Query(wire::Reason{})));
  world.hold("Relinquished");
  world.run_for(5);
  world.inject(wire::CommitMessage(id, kJob, 1, Role::kCoordinator, Role::kTarget, wire::Prepare{}));
  world.feed(id, Role::kTarget, TargetEvent(StandbyReady(Bytes{})));
  world.inject(wire::CommitMessage(id, kJob, 1, Role::kCoordinator, Role::kTarget, wire::Start{}));
  world.give_image(1, id);
  world.feed(id, Role::kTarget, TargetEvent(FinalVerified{}));
  world.run_for(1'000);
  return world.first_violation();
}

TEST(HandoverMutants, LatePrepareAfterRelinquishedStartsNoSecondInstance) {
  EXPECT_EQ(late_prepare(Mutant::kNone), "");
  EXPECT_NE(late_prepare(Mutant::kNoTombstone).find("two instances run"), std::string::npos);
}

// The source requests the target directly, and the target may answer the coordinator first. Operators must
// read the source's reason, not the target's.
TEST(HandoverReasons, ReasonOfTheSourceIsRecordedByTheTarget) {
  const wire::Reason reason(ErrorCode::kRefused, "/dev/shm has no room");
  World world({.seed = 1, .chance = false, .timing = fast()});
  const MigrationId id = bring_to_barrier(world);
  world.run_for(10);
  world.hold("Failed");
  world.feed(id, Role::kSource, SourceEvent(EngineFailed(reason)));
  world.run_for(1'000);
  EXPECT_EQ(world.first_violation(), "");
  const auto& journal = world.journal(1);
  const auto record = std::find_if(journal.begin(), journal.end(),
                                   [](const Record& r) { return r.kind == RecordKind::kRelinquished; });
  ASSERT_NE(record, journal.end());
  EXPECT_EQ(record->reason, reason);
}

// Runs a case in which the target's agent is killed after COMMITTED, restarts and reports COMMITTED. Then its
// node is lost before the target has run.
std::string lost_before_it_ran(Mutant mutant) {
  World world({.seed = 1, .chance = false, .mutant = mutant, .timing = fast()});
  world.crash_after(1, "record COMMITTED");
  world.migrate(0, 1);
  world.run_for(300);
  world.hold("Lease");
  world.restart(1);
  world.run_for(1);  // Committed arrives, but the answer to it does not
  world.lose(1);
  world.release_held();
  world.run_for(10'000);
  return world.goal() ? world.first_violation() : "the job does not run";
}

TEST(HandoverMutants, SourceMemoryIsFreedOnlyAfterTheTargetRuns) {
  EXPECT_EQ(lost_before_it_ran(Mutant::kNone), "");
  EXPECT_NE(lost_before_it_ran(Mutant::kFreeAtCommit).find("freed"), std::string::npos);
}

// Runs a case in which RUNS(n+1) is late. Meanwhile the target was disconnected, its lease expired, and the
// source runs n+2.
std::string runs_is_late(Mutant mutant) {
  World world({.seed = 1, .chance = false, .mutant = mutant, .timing = fast()});
  world.hold("Ran");
  world.migrate(0, 1);
  world.run_for(100);
  world.cut(1, 2, true);
  world.cut(0, 1, true);
  world.run_for(6'000);
  EXPECT_TRUE(world.runs_on(0));
  EXPECT_EQ(world.highest_run(), 3U);
  world.cut(0, 1, false);
  world.release_held();
  world.run_for(50);
  world.cut(1, 2, false);
  world.run_for(10'000);
  return world.goal() ? world.first_violation() : "the job does not run";
}

TEST(HandoverMutants, LateRunsMessageFreesNoMemory) {
  EXPECT_EQ(runs_is_late(Mutant::kNone), "");
  EXPECT_NE(runs_is_late(Mutant::kLateRuns).find("freed"), std::string::npos);
}

// The target has committed, its lease expires, and only the source is reachable. SW-10: the source lends a
// lease.
TEST(HandoverLending, SourceLeasesToACommittedTargetWhileTheCoordinatorIsDown) {
  World world({.seed = 1, .chance = false, .timing = fast()});
  world.crash_after(1, "record COMMITTED");
  world.migrate(0, 1);
  world.run_for(300);
  world.crash(kCoordinatorNode);
  world.run_for(5'000);
  EXPECT_EQ(world.running(), 0);
  world.restart(1);
  world.run_for(1'000);
  EXPECT_TRUE(world.runs_on(1));
  EXPECT_EQ(world.journal(0).back().kind, RecordKind::kReleased);
  // The owner needs no lease.
  world.run_for(60'000);
  EXPECT_TRUE(world.runs_on(1));
  world.restart(kCoordinatorNode);
  world.run_for(5'000);
  EXPECT_EQ(world.journal(kCoordinatorNode).back().kind, RecordKind::kClosed);
  EXPECT_EQ(world.first_violation(), "");
}

// Runs a case in which the target runs again under the source's lease, and reports this too late. Meanwhile
// the coordinator grants n+2 to the source.
std::string granted_while_lent(Mutant mutant, bool restarted) {
  World world({.seed = 1, .chance = false, .mutant = mutant, .timing = fast()});
  world.hold("Ran");
  world.migrate(0, 1);
  world.run_for(100);
  world.cut(1, kCoordinatorNode, true);
  world.run_for(2'500);
  EXPECT_TRUE(world.runs_on(1));
  world.cut(0, 1, true);
  if (restarted) {
    world.crash(0);
    world.restart(0);
  }
  for (int i = 0; i < 10'000 && !world.runs_on(0) && world.first_violation().empty(); ++i) world.run_for(1);
  if (world.first_violation().empty() && !world.runs_on(0)) return "the job does not run";
  return world.first_violation();
}

TEST(HandoverMutants, GrantDuringASourceLeaseRunsOnlyOneInstance) {
  EXPECT_EQ(granted_while_lent(Mutant::kNone, false), "");
  EXPECT_EQ(granted_while_lent(Mutant::kNone, true), "");
  EXPECT_NE(granted_while_lent(Mutant::kLendsUnremembered, false).find("two instances run"),
            std::string::npos);
  EXPECT_NE(granted_while_lent(Mutant::kForgetsItsLoan, true).find("two instances run"), std::string::npos);
}

struct MutantCase {
  Mutant mutant;
  const char* name;
  const char* expected;
};

class RandomMutants : public testing::TestWithParam<MutantCase> {};

TEST_P(RandomMutants, InjectedMistakeIsFoundByTheFuzzer) {
  for (std::uint64_t seed = 1; seed <= 20'000; ++seed) {
    const Outcome outcome =
        play(seed, GetParam().mutant, false, GetParam().mutant == Mutant::kTrustsOldStore);
    if (outcome.violation.find(GetParam().expected) == std::string::npos) continue;
    std::cout << GetParam().name << " found with seed " << seed << ": " << outcome.violation << "\n";
    return;
  }
  FAIL() << "no seed up to 20000 finds " << GetParam().name;
}

constexpr const char* kTwo = "two instances run";
INSTANTIATE_TEST_SUITE_P(All, RandomMutants,
                         testing::Values(MutantCase{Mutant::kFinalFirst, "FinalFirst", kTwo},

                                         MutantCase{Mutant::kCAbortsAlone, "CAbortsAlone", kTwo},
                                         MutantCase{Mutant::kRunsBeforeRecord, "RunsBeforeRecord", kTwo},
                                         MutantCase{Mutant::kNoFence, "NoFence", kTwo},
                                         MutantCase{Mutant::kCForgetsLease, "CForgetsLease", kTwo},
                                         MutantCase{Mutant::kTrustsOldStore, "TrustsOldStore", kTwo}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ckpt::migration::test
