// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/evacuation/attempts.h"

#include <gtest/gtest.h>

namespace ckpt::coordinator {
namespace {

using wire::HealthOutcome;

class EvacuationPolicy : public ::testing::Test {
 protected:
  using Kind = EvacuationStep::Kind;
  using Again = EvacuationStep::Again;
  using State = EvacuationState;

  void SetUp() override {
    job_.id = 1;
    job_.state = JobState::kRunning;
    job_.segments.emplace_back("a", 1);
    job_.ranks.emplace_back().place = Place("a", 0);
    e_.id = 1;
    e_.job = 1;
    e_.from = Place("a", 0);
    e_.outcome = HealthOutcome::kLive;
    view_.job = &job_;
    view_.all = {&e_};
    view_.now_ms = 1'000'000;
  }
  EvacuationStep begin() { return begin_attempt(e_, view_, limits_); }
  EvacuationStep live(const Result<JobMovePlan>& plan) { return after_live_plan(e_, plan, facts_); }
  static JobMovePlan no_plan(const std::string& reason, const std::string& obstacle = "",
                             bool passing = false) {
    JobMovePlan plan;
    plan.reason = reason;
    plan.obstacle = obstacle;
    plan.passing = passing;
    return plan;
  }
  EvacuationStep ended(MigrationResult result, const Place& to) {
    Migration migration;
    migration.id = 7;
    migration.result = result;
    migration.to = to;
    return after_live(e_, migration);
  }

  Job job_;
  Evacuation e_;
  EvacuationView view_;
  EvacuationLimits limits_;
  ClusterFacts facts_;
};

TEST_F(EvacuationPolicy, ARemovedOrMovedJobIsNotEvacuated) {
  job_.ranks.front().place = Place("b", 0);
  EXPECT_EQ(begin().state, State::kGone);
  EXPECT_EQ(begin().note, "it runs at b:0 already");
  job_.state = JobState::kParked;
  EXPECT_EQ(begin().state, State::kParked);
  job_.state = JobState::kFailed;
  EXPECT_EQ(begin().state, State::kGone);
  view_.job = nullptr;
  EXPECT_EQ(begin().state, State::kGone);
}

TEST_F(EvacuationPolicy, AJobThatDiedOfTheFaultIsRestored) {
  job_.state = JobState::kFailed;
  e_.revive = true;
  e_.outcome = HealthOutcome::kRestore;
  EXPECT_EQ(begin().kind, Kind::kImage);
}

TEST_F(EvacuationPolicy, AnOpenMoveIsUsedIfTheMemoryIsReadableAndAbortedOtherwise) {
  Migration open;
  open.id = 7;
  open.to = Place("b", 0);
  view_.open = &open;
  const EvacuationStep joined = begin();
  EXPECT_EQ(joined.state, State::kMoving);
  EXPECT_EQ(e_.migration, 7U);
  EXPECT_EQ(e_.to, Place("b", 0));
  e_.outcome = HealthOutcome::kRestore;
  const EvacuationStep aborted = begin();
  EXPECT_EQ(aborted.kind, Kind::kAbortMove);
  EXPECT_EQ(aborted.migration, 7U);
  EXPECT_EQ(aborted.again, Again::kAtOnce);
  open.abort_cause = AbortCause::kUser;
  EXPECT_EQ(begin().migration, 0U) << "it is being aborted already";
}

TEST_F(EvacuationPolicy, EvacuationWaitsForAPausedPolicyAndForAnUnconfirmedJob) {
  view_.is_paused = true;
  EXPECT_EQ(begin().note, "the policy of a is paused");
  job_.unconfirmed = true;
  EXPECT_EQ(begin().kind, Kind::kWait);
  EXPECT_NE(begin().note, "the policy of a is paused");
}

TEST_F(EvacuationPolicy, TheBreakerOpensBeforeTheLimitIsExceeded) {
  Evacuation other;
  other.job = 2;
  other.started_ms = {view_.now_ms - 1};
  view_.all.push_back(&other);
  limits_.breaker_count = 1;
  const EvacuationStep opened = begin();
  EXPECT_EQ(opened.kind, Kind::kOpenBreaker);
  EXPECT_EQ(opened.reason, "1 evacuations within 10 min");
  EXPECT_EQ(opened.note, "the circuit breaker is open");
  view_.forgiven_ms = view_.now_ms;
  EXPECT_EQ(begin().kind, Kind::kLive);
  view_.is_breaker_open = true;
  EXPECT_EQ(begin().kind, Kind::kWait);
}

TEST_F(EvacuationPolicy, TheBreakerDoesNotDelayAnEvacuationThatIsAlreadyCounted) {
  e_.started_ms = {view_.now_ms - 1};
  limits_.breaker_count = 1;
  EXPECT_EQ(begin().kind, Kind::kLive);
  limits_.attempts_per_job = 1;
  EXPECT_EQ(begin().state, State::kLeft);
}

TEST_F(EvacuationPolicy, WithoutATargetAnUrgentJobIsParkedAndOtherJobsWait) {
  EXPECT_EQ(live(no_plan("full")).kind, Kind::kPark);
  EXPECT_TRUE(live(no_plan("full")).snapshot) << "it runs, and its memory can be read";
  facts_.may_come_back = true;
  EXPECT_EQ(live(no_plan("full")).note, "full; the job is moved once a GPU has enough free memory");
  facts_.may_come_back = false;
  e_.urgent = false;
  EXPECT_EQ(live(no_plan("full")).kind, Kind::kWait);
}

TEST_F(EvacuationPolicy, AJobWithAPermanentObstacleIsRestoredFromAnImage) {
  EXPECT_EQ(live(no_plan("r", "a socket", true)).kind, Kind::kWait);
  EXPECT_EQ(e_.outcome, HealthOutcome::kLive);
  e_.urgent = false;
  EXPECT_EQ(live(no_plan("r", "a socket")).state, State::kLeft);
  e_.urgent = true;
  const EvacuationStep image = live(no_plan("r", "a socket"));
  EXPECT_EQ(image.kind, Kind::kImage);
  EXPECT_TRUE(image.makes_way);
  EXPECT_EQ(e_.not_live, "a socket");
  EXPECT_EQ(e_.outcome, HealthOutcome::kRestore);
}

TEST_F(EvacuationPolicy, TargetsAreTriedInTurnUpToTheMaximum) {
  EXPECT_FALSE(before_live_plan(e_, false, facts_, limits_));
  EXPECT_EQ(before_live_plan(e_, true, facts_, limits_)->kind, Kind::kWait);
  const EvacuationStep next = ended(MigrationResult::kFailed, Place("b", 0));
  EXPECT_EQ(next.state, State::kQueued);
  EXPECT_EQ(next.again, Again::kAtOnce);
  ASSERT_EQ(closed_for(e_).size(), 2U);
  EXPECT_EQ(closed_for(e_).front().first, Scope("b", 0));
  limits_.live_targets = 1;
  EXPECT_EQ(before_live_plan(e_, false, facts_, limits_)->kind, Kind::kImage);
  EXPECT_EQ(e_.outcome, HealthOutcome::kRestore);
  EXPECT_EQ(closed_for(e_).size(), 1U) << "an image may go there";
}

TEST_F(EvacuationPolicy, ANonUrgentEvacuationRestartsAtTheNextChange) {
  e_.urgent = false;
  EXPECT_EQ(ended(MigrationResult::kTimedOut, Place("b", 0)).again, Again::kAtChange);
  const EvacuationStep step = live(no_plan("full"));
  EXPECT_EQ(step.kind, Kind::kWait);
  EXPECT_TRUE(e_.failed.empty());
}

TEST_F(EvacuationPolicy, OutcomeOfALiveMoveDecidesTheNextStep) {
  EXPECT_EQ(ended(MigrationResult::kDone, Place("b", 0)).state, State::kMoved);
  EXPECT_EQ(e_.lost_ms, 0);
  EXPECT_EQ(ended(MigrationResult::kDone, e_.from).state, State::kQueued) << "it came here";
  EXPECT_EQ(ended(MigrationResult::kLost, Place("b", 0)).state, State::kLeft);
  EXPECT_EQ(ended(MigrationResult::kInterrupted, Place("b", 0)).state, State::kLeft);
  e_.outcome = HealthOutcome::kRestore;  // the evacuation aborted the move
  EXPECT_EQ(ended(MigrationResult::kInterrupted, Place("b", 0)).state, State::kQueued);
  EXPECT_TRUE(e_.failed.empty());
}

TEST_F(EvacuationPolicy, AJobWithoutAnImageIsLeftUnlessAnImageCanBeTakenOrFound) {
  facts_.are_away = true;
  EXPECT_EQ(without_image(e_, job_, true, facts_).kind, Kind::kWait);
  facts_.are_away = false;
  EXPECT_EQ(without_image(e_, job_, true, facts_).state, State::kLeft);
  e_.failed.emplace_back(Place("b", 0), "it failed");
  EXPECT_EQ(without_image(e_, job_, true, facts_).kind, Kind::kPark);
  EXPECT_EQ(without_image(e_, job_, false, facts_).state, State::kLeft);
}

TEST_F(EvacuationPolicy, OutcomeOfARestoreDecidesTheNextStep) {
  EXPECT_EQ(after_restore_plan(e_, Place("b", 0), "", facts_).kind, Kind::kBeginRestore);
  EXPECT_EQ(e_.to, Place("b", 0));
  e_.state = State::kRestoring;
  Restored there;
  there.place = Place("c", 0);
  there.image.node = "v";
  there.image.version = 3;
  there.lost_ms = 1'500;
  const EvacuationStep done = after_restore(e_, there, facts_);
  EXPECT_EQ(done.state, State::kRestored);
  EXPECT_EQ(done.note, "version 3 of v, 1.5 s of work are lost");
  EXPECT_EQ(e_.to, Place("c", 0));
  EXPECT_EQ(after_restore(e_, Error(ErrorCode::kIo, "disk"), facts_).state, State::kQueued);
  EXPECT_FALSE(e_.to);
  EXPECT_EQ(after_restore(e_, Error(ErrorCode::kNotFound, "no image"), facts_).state, State::kLeft);
  const EvacuationStep full = after_restore(e_, Error(ErrorCode::kUnavailable, "full"), facts_);
  EXPECT_EQ(full.kind, Kind::kPark);
  EXPECT_FALSE(full.snapshot) << "its memory must not be read";
}

TEST_F(EvacuationPolicy, ARestartDetectsWhetherTheRestoreHappened) {
  EXPECT_FALSE(after_restart(e_, &job_));
  e_.state = State::kRestoring;
  EXPECT_EQ(after_restart(e_, &job_)->state, State::kQueued);
  job_.ranks.front().place = Place("b", 0);
  EXPECT_EQ(after_restart(e_, &job_)->state, State::kRestored);
  EXPECT_EQ(e_.to, Place("b", 0));
  e_.state = State::kParking;
  EXPECT_EQ(after_restart(e_, &job_)->state, State::kQueued);
}

}  // namespace
}  // namespace ckpt::coordinator
