// SPDX-License-Identifier: Apache-2.0
// Tests the gang commit step by step: the required outcomes without faults, and mistakes that random runs
// find too rarely.
#include <gtest/gtest.h>

#include "tests/unit/libckpt/protocol/gang/gang_world.h"

namespace ckpt::gang::test {
namespace {

const Party kCoordinator;
const Party kLead(Role::kTarget, 0);
const Party kSources[] = {Party(Role::kSource, 0), Party(Role::kSource, 1)};
const Party kBystander(Role::kBystander, 2);

World::Options with(Mutant mutant = Mutant::kNone) {
  World::Options options;
  options.mutant = mutant;
  options.timing.lease_term_ms = 2'000;
  options.timing.lease_drift_ms = 100;
  options.timing.lease_renew_ms = 600;
  options.timing.poll_ms = 200;
  options.timing.silence_ms = 1'000;
  options.timing.handover_timeout_ms = 60'000;
  return options;
}

void run_until(World& world, const Party& party, const std::string& record) {
  for (int i = 0; i < 10'000 && world.last_record(party) != record; ++i)
    ASSERT_TRUE(world.step()) << world.summary();
  ASSERT_EQ(world.last_record(party), record) << world.summary();
}

TEST(GangScenario, AllRanksChangeEpochTogether) {
  World world(with());
  world.migrate();
  world.run_for(5'000);
  EXPECT_TRUE(world.runs_new()) << world.summary();
  EXPECT_TRUE(world.is_settled());
  EXPECT_EQ(world.last_record(kSources[0]), "RELEASED");
  EXPECT_EQ(world.last_record(kBystander), "GONE");
  EXPECT_EQ(world.first_violation(), "");
}

TEST(GangScenario, GangWithoutBystandersMovesCompletely) {
  World::Options options = with();
  options.staying = 0;
  World world(options);
  world.migrate();
  world.run_for(5'000);
  EXPECT_TRUE(world.runs_new()) << world.summary();
  EXPECT_EQ(world.first_violation(), "");
}

TEST(GangScenario, CommunicatorsAreCreatedWhileAllRanksAreHeld) {
  World::Options options = with();
  options.overlaps = false;
  World world(options);
  world.migrate();
  world.run_for(5'000);
  EXPECT_TRUE(world.runs_new()) << world.summary();
  EXPECT_EQ(world.first_violation(), "");
}

TEST(GangScenario, MoveEndsIfTheCreationOfCommunicatorsFails) {
  for (const bool overlaps : {true, false}) {
    World::Options options = with();
    options.overlaps = overlaps;
    World world(options);
    world.make_no_communicators();
    world.migrate();
    world.run_for(1'000);
    EXPECT_EQ(world.last_record(kSources[0]), overlaps ? "-" : "BARRIER") << world.summary();
    world.run_for(9'000);
    EXPECT_TRUE(world.runs_old()) << world.summary();
    EXPECT_TRUE(world.is_settled()) << world.summary();
    EXPECT_EQ(world.last_record(kLead), "RELINQUISHED");
    EXPECT_EQ(world.first_violation(), "");
  }
}

TEST(GangScenario, MoveEndsIfTheAgentOfABystanderForgetsTheMove) {
  for (const bool overlaps : {true, false}) {
    World::Options options = with();
    options.overlaps = overlaps;
    options.communicators_ms = 60'000;
    World world(options);
    world.migrate();
    run_until(world, kCoordinator, "GRANTED(n+1)");
    world.crash(kBystander);
    world.run_for(100);
    world.restart(kBystander);
    world.run_for(3'000);
    EXPECT_TRUE(world.runs_old()) << world.summary();
    EXPECT_TRUE(world.is_settled()) << world.summary();
  }
}

TEST(GangScenario, HeldRanksWaitOnlyBrieflyForASilentRank) {
  World::Options options = with();
  options.overlaps = false;
  options.communicators_ms = 60'000;
  World world(options);
  world.make_no_communicators();
  world.migrate();
  run_until(world, kSources[0], "BARRIER");
  world.crash(kBystander);
  world.run_for(5'000);
  EXPECT_EQ(world.last_record(kSources[0]), "RESUMED") << world.summary();
  world.restart(kBystander);
  world.run_for(2'000);
  EXPECT_TRUE(world.runs_old()) << world.summary();
  EXPECT_TRUE(world.is_settled()) << world.summary();
}

// Ranks that stay had nothing to report during this time.
TEST(GangScenario, LongCopyBeforeThePauseMakesNoRankSilent) {
  for (const bool overlaps : {true, false}) {
    World::Options options = with();
    options.overlaps = overlaps;
    options.communicators_ms = 60'000;
    World world(options);
    world.hold("Precopied");
    world.migrate();
    world.run_for(5 * options.timing.silence_ms);
    EXPECT_EQ(world.last_record(kCoordinator), "BEGUN") << world.summary();
    world.release();
    world.run_for(8'000);
    EXPECT_TRUE(world.runs_new()) << world.summary();
    EXPECT_EQ(world.first_violation(), "");
  }
}

// Returns options with a short handover timeout. Sources that are done would give up 10 s before the slow
// source's last copy ends.
World::Options with_short_handover() {
  World::Options options = with();
  options.timing.handover_timeout_ms = 2'000;
  return options;
}

TEST(GangScenario, EachSourceWaitsForTheLastCopyOfTheOtherSources) {
  for (const bool overlaps : {true, false}) {
    for (const std::uint32_t slow : {0u, 1u}) {
      World::Options options = with_short_handover();
      options.overlaps = overlaps;
      World world(options);
      world.take_long_for_last_copy(slow, 12'000);
      world.migrate();
      world.run_for(11'000);
      EXPECT_EQ(world.last_record(kSources[1 - slow]), "BARRIER") << world.summary();
      world.run_for(9'000);
      EXPECT_TRUE(world.runs_new()) << world.summary();
      EXPECT_TRUE(world.is_settled());
      EXPECT_EQ(world.first_violation(), "");
    }
  }
}

TEST(GangScenario, SourcesWaitForASlowSourceAtTheCommonStep) {
  World world(with_short_handover());
  world.take_long_to_hold(kSources[1], 6'000);
  world.migrate();
  world.run_for(5'000);
  EXPECT_EQ(world.last_record(kSources[0]), "BARRIER") << world.summary();
  EXPECT_EQ(world.last_record(kSources[1]), "-");
  world.run_for(9'000);
  EXPECT_TRUE(world.runs_new()) << world.summary();
  EXPECT_TRUE(world.is_settled());
  EXPECT_EQ(world.first_violation(), "");
}

TEST(GangScenario, FailedLastCopyEndsTheMoveOfAllRanks) {
  World world(with_short_handover());
  world.take_long_for_last_copy(1, 60'000);
  world.migrate();
  world.run_for(8'000);
  EXPECT_EQ(world.last_record(kSources[0]), "BARRIER") << world.summary();
  world.crash(kSources[1]);
  world.run_for(100);
  world.restart(kSources[1]);
  world.run_for(5'000);
  EXPECT_TRUE(world.runs_old()) << world.summary();
  EXPECT_TRUE(world.is_settled());
}

// Nothing more is known of the source's copy: the coordinator has not given up the source, and the engine of
// its target has not failed.
TEST(GangScenario, WaitForADisconnectedSourceIsLimitedByTheHandoverTimeout) {
  World::Options options = with_short_handover();
  options.timing.silence_ms = 60'000;
  World world(options);
  world.take_long_for_last_copy(1, 60'000);
  world.migrate();
  world.run_for(6'000);
  EXPECT_EQ(world.last_record(kSources[0]), "BARRIER") << world.summary();
  world.cut_off(kSources[1], true);
  world.run_for(4'000);
  EXPECT_EQ(world.last_record(kSources[0]), "RESUMED") << world.summary();
  world.cut_off(kSources[1], false);
  world.run_for(3'000);
  EXPECT_TRUE(world.runs_old()) << world.summary();
  EXPECT_TRUE(world.is_settled());
}

TEST(GangScenario, AbortBeforeTheCommitLeavesAllRanksInTheOldEpoch) {
  World world(with());
  world.hold("Ready");
  world.migrate();
  run_until(world, kBystander, "HELD");
  world.abort_migration();
  world.run_for(5'000);
  EXPECT_TRUE(world.runs_old()) << world.summary();
  EXPECT_EQ(world.last_record(kCoordinator), "CLOSED(source)");
}

// Deletes the coordinator's journal and restarts the coordinator. The successor learns of the move only from
// the ranks, and must end the move with the record `end`.
void lose_records(World& world, const std::string& end) {
  world.lose_records();
  world.run_for(500);
  world.restart(kCoordinator);
  world.run_for(20'000);
  EXPECT_EQ(world.last_record(kCoordinator), end) << world.summary();
  EXPECT_TRUE(world.is_settled());
  EXPECT_EQ(world.first_violation(), "");
}

TEST(GangScenario, CoordinatorWithALostJournalAbortsAMoveBeforeTheCommit) {
  World world(with());
  world.hold("Ready");
  world.migrate();
  run_until(world, kBystander, "HELD");
  lose_records(world, "CLOSED(source)");
  EXPECT_TRUE(world.runs_old());
}

TEST(GangScenario, CoordinatorWithALostJournalCompletesAMoveAfterTheCommit) {
  World world(with());
  world.migrate();
  run_until(world, kLead, "COMMITTED");
  lose_records(world, "CLOSED(target)");
  EXPECT_TRUE(world.runs_new());
}

TEST(GangScenario, CoordinatorWithALostJournalCompletesAReturn) {
  World world(with());
  world.fail_next_resume();
  world.migrate();
  run_until(world, kCoordinator, "GRANTED(n+2)");
  world.run_for(2);  // some parties know the move
  lose_records(world, "CLOSED(source)");
  EXPECT_TRUE(world.runs_old());
  EXPECT_FALSE(world.is_restored());
}

// Only one bystander has received the return, and cannot be reached. The node of a source is lost, so without
// this bystander the other ranks would continue in the new epoch.
TEST(GangScenario, CoordinatorWithALostJournalWaitsForAReturnedRank) {
  World::Options options = with();
  options.staying = 2;
  World world(options);
  const Party other(Role::kBystander, 3);
  world.hold("Go");
  world.migrate();
  run_until(world, kLead, "COMMITTED");
  world.run_for(500);
  world.cut_off(kLead, true);  // the lead is silent: the coordinator takes the return
  for (const Party& party : world.everyone())
    if (party != other) world.hold("Returned", party);
  run_until(world, other, "OLD");
  world.lose_records();
  world.release();
  world.cut_off(other, true);
  world.cut_off(kLead, false);
  world.lose(kSources[1]);
  world.restart(kCoordinator);
  world.prove_lost(kSources[1]);
  world.run_for(20'000);
  EXPECT_NE(world.last_record(kBystander), "GONE") << world.summary();
  world.cut_off(other, false);
  world.run_for(20'000);
  EXPECT_EQ(world.first_violation(), "");
  EXPECT_TRUE(world.is_settled()) << world.summary();
}

TEST(GangScenario, TargetThatCannotResumeLosesNoWork) {
  World world(with());
  world.fail_next_resume();
  world.migrate();
  world.run_for(20'000);
  EXPECT_TRUE(world.runs_old()) << world.summary();
  EXPECT_FALSE(world.is_restored());
  EXPECT_EQ(world.first_violation(), "");
}

// Lets the lead decide, pass its gate, and lose the coordinator. No other rank receives GO.
void lead_runs_alone(World& world) {
  world.hold("Go");
  world.migrate();
  run_until(world, kLead, "COMMITTED");
  world.run_for(1'000);
  world.cut(kLead, kCoordinator, true);
}

void return_to_sources(World& world) {
  lead_runs_alone(world);
  run_until(world, kBystander, "HELD_STILL");
  world.run_for(50);  // the bystander has stated HELD_STILL
  world.cut(kBystander, kCoordinator, true);
  for (const Party& source : kSources) world.cut(kBystander, source, true);
  run_until(world, kCoordinator, "GRANTED(n+2)");
  run_until(world, kSources[0], "RESUMED");
}

std::string still_is_forgotten(Mutant mutant) {
  World world(with(mutant));
  return_to_sources(world);
  world.crash(kBystander);
  world.restart(kBystander);
  world.release();  // the lead repeats GO
  world.run_for(2'000);
  return world.first_violation();
}

std::string return_is_forgotten(Mutant mutant) {
  World world(with(mutant));
  return_to_sources(world);
  for (const Party& source : kSources) world.cut(source, kCoordinator, true);
  for (const Party& source : kSources) world.cut(source, kLead, true);
  world.crash(kCoordinator);
  world.restart(kCoordinator);
  world.cut(kLead, kCoordinator, false);
  world.run_for(5'000);
  return world.first_violation();
}

std::string lease_is_forgotten(Mutant mutant) {
  World world(with(mutant));
  lead_runs_alone(world);
  world.cut(Party(Role::kTarget, 1), kCoordinator, true);
  world.crash(kCoordinator);
  world.restart(kCoordinator);
  world.run_for(10'000);
  return world.first_violation();
}

// Runs a case in which a bystander is lost after the switch, so the gang is restored from its image. The
// instance of `slow` takes seconds to end.
std::string restore_beside(Mutant mutant, const Party& slow) {
  World world(with(mutant));
  world.take_long_to_end(slow, 3'000);
  world.hold("Owns");  // the move is not settled
  world.migrate();
  run_until(world, kCoordinator, "CLOSED(target)");
  world.run_for(200);
  const Party lost = slow.role == Role::kBystander ? kLead : kBystander;
  world.lose(lost);
  world.prove_lost(lost);
  world.run_for(1'000);
  EXPECT_EQ(world.last_record(kCoordinator), "RESTORED") << world.summary();
  EXPECT_EQ(world.is_restored(), mutant != Mutant::kNone) << world.summary();
  world.run_for(5'000);
  EXPECT_TRUE(world.is_restored()) << world.summary();
  return world.first_violation();
}

TEST(GangScenario, GangIsRestoredOnlyAfterEachInstanceHasEnded) {
  for (const Party& slow : {kLead, kBystander}) {
    EXPECT_EQ(restore_beside(Mutant::kNone, slow), "");
    EXPECT_NE(restore_beside(Mutant::kStatedBeforeEnd, slow), "");
  }
}

// The agent is restarted while its instance still ends: the order is carried out again, and then stated.
TEST(GangScenario, ExitOfAnInstanceIsAwaitedAgainAfterAnAgentRestart) {
  World world(with());
  world.take_long_to_end(kLead, 3'000);
  world.hold("Owns");
  world.migrate();
  run_until(world, kCoordinator, "CLOSED(target)");
  world.run_for(200);
  world.lose(kBystander);
  world.prove_lost(kBystander);
  run_until(world, kLead, "RELINQUISHED");
  world.crash(kLead);
  world.restart(kLead);
  world.run_for(1'000);
  EXPECT_FALSE(world.is_restored()) << world.summary();
  world.run_for(6'000);
  EXPECT_TRUE(world.is_restored()) << world.summary();
  EXPECT_EQ(world.first_violation(), "");
}

TEST(GangScenario, HeldBystanderRefusesARepeatedGoAfterItsRestart) {
  EXPECT_EQ(still_is_forgotten(Mutant::kNone), "");
  EXPECT_NE(still_is_forgotten(Mutant::kStillNotDurable), "");
}

TEST(GangScenario, RestartedCoordinatorLeasesToNoTargetAfterGrantingTheReturn) {
  EXPECT_EQ(return_is_forgotten(Mutant::kNone), "");
  EXPECT_NE(return_is_forgotten(Mutant::kReturnNotDurable), "");
}

TEST(GangScenario, RestartedCoordinatorWaitsForItsEarlierLeases) {
  EXPECT_EQ(lease_is_forgotten(Mutant::kNone), "");
  EXPECT_NE(lease_is_forgotten(Mutant::kLeaseForgotten), "");
}

}  // namespace
}  // namespace ckpt::gang::test
