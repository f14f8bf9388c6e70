// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/drain/drain_tries.h"

#include <gtest/gtest.h>

#include <map>

namespace ckpt::coordinator {
namespace {

class FakeDrainView final : public DrainView {
 public:
  std::vector<const Job*> live() const override {
    std::vector<const Job*> found;
    for (const auto& [id, job] : jobs) found.push_back(&job);
    return found;
  }
  const Job* job(JobId id) const override { return jobs.contains(id) ? &jobs.at(id) : nullptr; }
  const Migration* open_of(JobId job) const override {
    for (const auto& [id, migration] : migrations)
      if (migration.job == job && migration.open()) return &migration;
    return nullptr;
  }
  const Migration* migration(MigrationId id) const override {
    return migrations.contains(id) ? &migrations.at(id) : nullptr;
  }

  Job& add(JobId id, const Place& place) {
    Job& job = jobs[id];
    job.id = id;
    job.spec.name = "job-" + std::to_string(id);
    job.state = JobState::kRunning;
    job.segments.emplace_back(place.node, 1);
    job.ranks.emplace_back().place = place;
    return job;
  }
  Migration& move(MigrationId id, JobId job, const Place& from, const Place& to) {
    Migration& migration = migrations[id];
    migration.id = id;
    migration.job = job;
    migration.from = from;
    migration.to = to;
    return migration;
  }
  void end(MigrationId id, MigrationResult result, const std::string& error) {
    migrations.at(id).phase = MigrationPhase::kClosed;
    migrations.at(id).result = result;
    migrations.at(id).error = error;
  }

  std::map<JobId, Job> jobs;
  std::map<MigrationId, Migration> migrations;
};

class DrainPolicy : public ::testing::Test {
 protected:
  using S = DrainJobState;

  void SetUp() override {
    drain_.scope = Scope("a", std::nullopt);
    drain_.deadline_ms = 100'000;
  }
  DrainProgress look() { return reconcile(drain_, view_, now_ms_); }
  DrainJob& entry(JobId id) { return *drain_.find(id); }
  std::vector<JobId> order() {
    std::vector<JobId> found;
    for (const DrainGroup& group : ready_groups(drain_, view_)) found.push_back(group.job);
    return found;
  }
  DrainGroup group(JobId id) {
    for (DrainGroup& found : ready_groups(drain_, view_))
      if (found.job == id) return found;
    return {};
  }
  DrainStep after(JobId id, const Result<JobMovePlan>& plan, bool has_obstacles = false) {
    SourceFacts source;
    source.leaves_node = true;
    source.has_obstacles = has_obstacles;
    return tries_.after_plan(group(id), plan, source, [](const Place&) { return false; });
  }
  static GroupNow with_turn() {
    GroupNow now;
    now.has_turn = true;
    return now;
  }
  static JobMovePlan plan_to(std::vector<Place> places) {
    JobMovePlan plan;
    plan.places = std::move(places);
    return plan;
  }
  static JobMovePlan no_plan(const std::string& reason, bool passing) {
    JobMovePlan plan;
    plan.reason = reason;
    plan.passing = passing;
    return plan;
  }

  std::int64_t now_ms_ = 1'000;
  Drain drain_;
  FakeDrainView view_;
  DrainTries tries_;
  DrainNews news_;
};

TEST_F(DrainPolicy, AddsTheJobsAtThePlaceAndTheJobsMovingToThePlace) {
  view_.add(1, Place("a", 0));
  view_.add(2, Place("b", 0));
  view_.add(3, Place("a", 1)).state = JobState::kParked;
  EXPECT_FALSE(look().coming);
  ASSERT_EQ(drain_.jobs.size(), 1U);
  EXPECT_EQ(entry(1).name, "job-1");
  EXPECT_EQ(entry(1).from, Place("a", 0));
  view_.move(7, 2, Place("b", 0), Place("a", 1));
  EXPECT_TRUE(look().coming);
  EXPECT_EQ(drain_.jobs.size(), 1U);
}

TEST_F(DrainPolicy, ACompletedMoveCountsOnceItsMeasurementsHaveArrived) {
  Job& job = view_.add(1, Place("a", 0));
  view_.move(7, 1, Place("a", 0), Place("b", 0));
  (void)look();
  EXPECT_EQ(entry(1).state, S::kMoving);
  EXPECT_EQ(entry(1).reason, "m7 is preparing");
  job.ranks.front().place = Place("b", 0);
  (void)look();
  EXPECT_EQ(entry(1).state, S::kMoving);
  view_.end(7, MigrationResult::kDone, "");
  job.last_downtime_ms = 8;
  (void)look();
  EXPECT_EQ(entry(1).state, S::kMoved);
  EXPECT_EQ(entry(1).to, Place("b", 0));
  EXPECT_EQ(entry(1).downtime_ms, 8);
}

TEST_F(DrainPolicy, AFailedMoveIsRetriedUpToTheMaximum) {
  view_.add(1, Place("a", 0));
  for (MigrationId id = 1; id <= kMaxDrainAttempts; ++id) {
    view_.move(id, 1, Place("a", 0), Place("b", 0));
    (void)look();
    view_.end(id, MigrationResult::kFailed, "no link");
    const DrainProgress progress = look();
    ASSERT_EQ(progress.failed.size(), 1U);
    EXPECT_EQ(progress.failed.front().to, Place("b", 0));
    EXPECT_EQ(progress.failed.front().refusal, "");
    EXPECT_EQ(entry(1).state, id < kMaxDrainAttempts ? S::kWaiting : S::kFailed);
  }
}

TEST_F(DrainPolicy, AbortedAndExpiredMovesAreNotCountedAsFailures) {
  view_.add(1, Place("a", 0));
  view_.add(2, Place("a", 1));
  view_.move(1, 1, Place("a", 0), Place("b", 0));
  view_.move(2, 2, Place("a", 1), Place("b", 1));
  (void)look();
  view_.end(1, MigrationResult::kInterrupted, "");
  view_.end(2, MigrationResult::kTimedOut, "");
  now_ms_ = drain_.deadline_ms;
  EXPECT_TRUE(look().failed.empty());
  EXPECT_EQ(entry(1).state, S::kLeft);
  EXPECT_EQ(entry(2).state, S::kWaiting);
  EXPECT_EQ(entry(2).attempts, 0U);
}

TEST_F(DrainPolicy, JobsThatEndOrAreLostNeedNoMove) {
  view_.add(1, Place("a", 0));
  view_.add(2, Place("a", 1));
  view_.add(3, Place("a", 2));
  view_.add(4, Place("a", 3));
  (void)look();
  view_.jobs.at(1).state = JobState::kExited;
  view_.jobs.at(1).exit_code = 3;
  view_.jobs.at(2).state = JobState::kLost;
  view_.jobs.erase(3);
  view_.jobs.at(4).state = JobState::kParked;
  (void)look();
  EXPECT_EQ(entry(1).state, S::kEnded);
  EXPECT_EQ(entry(1).reason, "it ended with exit code 3");
  EXPECT_EQ(entry(2).state, S::kLost);
  EXPECT_EQ(entry(3).state, S::kEnded);
  EXPECT_EQ(entry(4).reason, "it is parked");
}

TEST_F(DrainPolicy, RanksOfOneJobAreOneGroupAndMostRanksComeFirst) {
  view_.add(1, Place("a", 0)).spec.priority = 9;
  for (JobId id = 2; id <= 4; ++id)
    view_.add(id, Place("a", static_cast<std::uint32_t>(id))).spec.gang.id = 4;
  (void)look();
  EXPECT_EQ(order(), (std::vector<JobId>{4, 1}));
  EXPECT_EQ(group(4).entries.size(), 3U);
  const auto places = std::vector<Place>(3, Place("b", 0));
  EXPECT_EQ(after(4, plan_to(places)), DrainStep::kBegin);
}

TEST_F(DrainPolicy, AnUnconfirmedJobIsBlockedAndBelongsToNoGroup) {
  view_.add(1, Place("a", 0)).unconfirmed = true;
  (void)look();
  EXPECT_TRUE(order().empty());
  EXPECT_EQ(entry(1).state, S::kBlocked);
  EXPECT_FALSE(entry(1).reason.empty());
}

TEST_F(DrainPolicy, AMovableJobWaitsForItsTurn) {
  view_.add(1, Place("a", 0));
  (void)look();
  GroupNow now;
  EXPECT_FALSE(tries_.prepare_try(group(1), now, news_));
  EXPECT_EQ(entry(1).reason, "waits for its turn");
  now.is_movable = false;
  EXPECT_TRUE(tries_.prepare_try(group(1), now, news_));
}

TEST_F(DrainPolicy, RanksWaitForTheirTurnUnlessTheRanksAreBlocked) {
  view_.add(1, Place("a", 0)).spec.gang.id = 1;
  (void)look();
  entry(1).reason = kBeingPrepared;  // by a coordinator that has been restarted
  EXPECT_FALSE(tries_.prepare_try(group(1), GroupNow(), news_));
  EXPECT_EQ(entry(1).reason, "waits for its turn");
  EXPECT_EQ(after(1, no_plan("another model", false)), DrainStep::kMakeWay);
  EXPECT_FALSE(tries_.prepare_try(group(1), GroupNow(), news_));
  EXPECT_EQ(entry(1).state, S::kBlocked);
  EXPECT_EQ(entry(1).reason, "another model");
}

TEST_F(DrainPolicy, AJobIsPlannedOncePerChangeButNotDuringItsPreparation) {
  view_.add(1, Place("a", 0));
  (void)look();
  GroupNow preparing = with_turn();
  preparing.is_preparing = true;
  EXPECT_FALSE(tries_.prepare_try(group(1), preparing, news_));
  EXPECT_TRUE(tries_.prepare_try(group(1), with_turn(), news_));
  EXPECT_FALSE(tries_.prepare_try(group(1), with_turn(), news_));
  ++news_.changes;
  EXPECT_TRUE(tries_.prepare_try(group(1), with_turn(), news_));
}

TEST_F(DrainPolicy, AFailedJobWaitsForAnInventoryAndAvoidsTheFailedPlace) {
  view_.add(1, Place("a", 0));
  (void)look();
  tries_.note_failures({{1, 7, Place("b", 0), ""}}, news_);
  ++news_.changes;
  EXPECT_FALSE(tries_.prepare_try(group(1), with_turn(), news_));
  ++news_.inventories;
  EXPECT_TRUE(tries_.prepare_try(group(1), with_turn(), news_));
  EXPECT_EQ(tries_.failures_of(group(1)).all.size(), 1U);
  EXPECT_TRUE(tries_.failures_of(group(1)).refused.empty());
  tries_.note_failures({{1, 8, Place("c", 0), ""}}, news_);
  ASSERT_EQ(tries_.failures_of(group(1)).all.size(), 1U) << "the last one only";
  EXPECT_EQ(tries_.failures_of(group(1)).all.front().first, Scope("c", 0));
}

TEST_F(DrainPolicy, AllTargetsOfAFailedMoveOfRanksAreAvoided) {
  for (JobId id = 1; id <= 2; ++id)
    view_.add(id, Place("a", static_cast<std::uint32_t>(id))).spec.gang.id = 9;
  view_.move(1, 1, Place("a", 1), Place("b", 0)).gang_move = 1;
  view_.move(2, 2, Place("a", 2), Place("c", 0)).gang_move = 1;
  (void)look();
  view_.end(1, MigrationResult::kFailed, "no link");
  tries_.note_failures(look().failed, news_);
  view_.end(2, MigrationResult::kFailed, "no link");  // the measurements of the move arrive later
  tries_.note_failures(look().failed, news_);
  EXPECT_EQ(tries_.failures_of(group(9)).all.size(), 2U);
  ++news_.changes;
  EXPECT_FALSE(tries_.prepare_try(group(9), with_turn(), news_)) << "it waits for an inventory";
}

// Only one target may have refused, and the outcome of the move does not name it.
TEST_F(DrainPolicy, TargetsOfARefusedMoveOfRanksMayBeTriedAgain) {
  for (JobId id = 1; id <= 2; ++id)
    view_.add(id, Place("a", static_cast<std::uint32_t>(id))).spec.gang.id = 9;
  view_.move(1, 1, Place("a", 1), Place("b", 0)).gang_move = 1;
  view_.move(2, 2, Place("a", 2), Place("c", 0)).gang_move = 1;
  (void)look();
  for (MigrationId id = 1; id <= 2; ++id) view_.end(id, MigrationResult::kRefused, "another driver");
  tries_.note_failures(look().failed, news_);
  EXPECT_EQ(tries_.failures_of(group(9)).all.size(), 2U);
  EXPECT_TRUE(tries_.failures_of(group(9)).refused.empty());
}

TEST_F(DrainPolicy, RefusalsAreRecordedAndTheJobsNodeIsQueriedOnce) {
  view_.add(1, Place("a", 0));
  (void)look();
  tries_.note_failures({{1, 7, Place("b", 0), "b refused"}}, news_);
  tries_.note_failures({{1, 8, Place("c", 0), "c refused"}}, news_);
  EXPECT_EQ(tries_.failures_of(group(1)).refused.size(), 2U);
  EXPECT_EQ(tries_.failures_of(group(1)).refusal, "b refused; c refused");
  const JobMovePlan plan = plan_to({Place("d", 0)});
  EXPECT_EQ(after(1, plan), DrainStep::kAskSource);
  EXPECT_EQ(entry(1).state, S::kWaiting);
  EXPECT_EQ(after(1, plan), DrainStep::kStay);
  tries_.note_answer(1, "it has a socket", news_);
  EXPECT_EQ(after(1, plan), DrainStep::kStay);
  EXPECT_EQ(entry(1).state, S::kBlocked);
  EXPECT_EQ(entry(1).reason, "it has a socket");
  for (int i = 0; i < 13; ++i) ++news_.inventories, ++news_.changes;
  EXPECT_TRUE(tries_.prepare_try(group(1), with_turn(), news_));
  EXPECT_TRUE(tries_.failures_of(group(1)).all.empty());
  EXPECT_EQ(after(1, plan), DrainStep::kAskSource) << "its program may have closed it";
}

TEST_F(DrainPolicy, ANodeThatCountsObstaclesIsQueriedBeforeTheFirstMove) {
  view_.add(1, Place("a", 0));
  (void)look();
  const JobMovePlan plan = plan_to({Place("b", 0)});
  EXPECT_EQ(after(1, plan, true), DrainStep::kAskSource);
  tries_.note_answer(1, "", news_);
  EXPECT_EQ(after(1, plan, true), DrainStep::kBegin);
}

TEST_F(DrainPolicy, WithoutATargetAJobWaitsOnlyForATemporaryObstacle) {
  view_.add(1, Place("a", 0));
  (void)look();
  EXPECT_EQ(after(1, no_plan("full", true)), DrainStep::kMakeWay);
  EXPECT_EQ(entry(1).state, S::kWaiting);
  EXPECT_EQ(after(1, no_plan("another model", false)), DrainStep::kMakeWay);
  EXPECT_EQ(entry(1).state, S::kBlocked);
  EXPECT_EQ(entry(1).reason, "another model");
  EXPECT_EQ(after(1, Error(ErrorCode::kRefused, "paused")), DrainStep::kStay);
  EXPECT_EQ(entry(1).state, S::kWaiting);
}

TEST_F(DrainPolicy, MovesThatDoNotBeginAreCountedForAllRanks) {
  for (JobId id = 1; id <= 2; ++id)
    view_.add(id, Place("a", static_cast<std::uint32_t>(id))).spec.gang.id = 1;
  (void)look();
  for (std::uint32_t i = 1; i <= kMaxDrainAttempts; ++i) {
    const DrainGroup both = group(1);
    ASSERT_EQ(both.entries.size(), 2U);
    tries_.note_not_begun(1, "no groups", news_);
    EXPECT_FALSE(tries_.prepare_try(both, with_turn(), news_));
    for (const DrainJob& job : drain_.jobs) {
      EXPECT_EQ(job.attempts, i);
      EXPECT_EQ(job.reason, "no groups");
      EXPECT_EQ(job.state, i < kMaxDrainAttempts ? S::kWaiting : S::kFailed);
    }
  }
}

TEST_F(DrainPolicy, StuckJobsAreRestoredOnceUpToTheLimit) {
  for (JobId id = 1; id <= 4; ++id) view_.add(id, Place("a", static_cast<std::uint32_t>(id)));
  (void)look();
  for (JobId id = 1; id <= 3; ++id) entry(id).state = S::kBlocked;
  EXPECT_TRUE(begin_restores(drain_, view_, 0, false).empty()) << "it was not asked for";
  drain_.fallback = Fallback::kRestore;
  view_.jobs.at(1).unconfirmed = true;
  EXPECT_TRUE(begin_restores(drain_, view_, 2, false).empty()) << "no turn";
  EXPECT_EQ(begin_restores(drain_, view_, 1, false), std::vector<JobId>{2});
  EXPECT_EQ(entry(2).state, S::kRestoring);
  EXPECT_EQ(begin_restores(drain_, view_, 1, false), std::vector<JobId>{3});
  EXPECT_TRUE(begin_restores(drain_, view_, 0, false).empty());
  EXPECT_EQ(begin_restores(drain_, view_, 0, true), std::vector<JobId>{4}) << "it waits past the deadline";
}

TEST_F(DrainPolicy, TimeLimitOfAMoveIsTheRemainingTimeOfTheDrainWithinBounds) {
  EXPECT_EQ(move_time_ms(drain_, 40'000), 60'000);
  EXPECT_EQ(move_time_ms(drain_, 99'999), kShortestMoveMs);
  drain_.deadline_ms = 10'000'000;
  EXPECT_EQ(move_time_ms(drain_, 0), 600'000);
}

}  // namespace
}  // namespace ckpt::coordinator
