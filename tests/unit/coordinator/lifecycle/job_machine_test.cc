// SPDX-License-Identifier: Apache-2.0
// Tests of the state machine of a job alone: rows of one rank or several, events, and a cluster that the test
// sets.
#include "coordinator/lifecycle/job_machine.h"

#include <gmock/gmock.h>

#include "coordinator/lifecycle/order_rules.h"
#include "coordinator/lifecycle/run_steps.h"
#include "tests/unit/coordinator/support/fake_job_view.h"

namespace ckpt::coordinator::lifecycle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t kNow = 1'000'000;

Job job_in(JobState state, std::uint32_t number = 0) {
  Job job;
  job.id = 1 + number;
  job.spec.name = "train." + std::to_string(number);
  job.spec.gang.name = "train";
  job.state = state;
  job.segments.emplace_back("a", 1);
  job.segments.back().image = "j1.v1@b";
  JobRank& rank = job.ranks.emplace_back();
  rank.rank = number;
  rank.place = Place("a", 0);
  return job;
}

Job with_operation(Job job, OperationStage stage, OperationGoal goal = OperationGoal::kRunning) {
  ImageOperation& operation = job.operation.emplace();
  operation.stage = stage;
  operation.goal = goal;
  operation.fenced = job.incarnation;
  operation.image.job = job.id;
  operation.image.node = "b";
  operation.to_node = "b";
  if (stage == OperationStage::kStarting) {
    job.state = JobState::kRestoring;
    job.incarnation = 2;
    job.segments.emplace_back("b", 2);
  }
  return job;
}

wire::JobInstance instance_of(const Job& job, wire::JobPhase phase) {
  wire::JobInstance instance;
  instance.job = job.id;
  instance.incarnation = job.segments.back().incarnation;
  instance.phase = phase;
  return instance;
}

class JobMachineTest : public ::testing::Test {
 protected:
  // Applies an event of one rank to the jobs.
  Result<void> make(std::size_t rank, JobEvent event) {
    std::vector<const Job*> ranks;
    ranks.reserve(jobs_.size());
    for (const Job& job : jobs_) ranks.push_back(&job);
    const RankEvent events[] = {{rank, std::move(event)}};
    CKPT_TRY(made, step(ranks, events, view_, kNow));
    changed_ = made.changed.size();
    actions_ = std::move(made.actions);
    for (const Job& changed : made.changed)
      for (Job& job : jobs_)
        if (job.id == changed.id) job = changed;
    return ok();
  }
  Job& only() { return jobs_.front(); }
  template <class Action>
  std::vector<Action> performed() const {
    std::vector<Action> found;
    for (const auto& [id, action] : actions_)
      if (const auto* one = std::get_if<Action>(&action)) found.push_back(*one);
    return found;
  }
  std::vector<std::string> logged() const {
    std::vector<std::string> kinds;
    for (const LogEntry& entry : performed<LogEntry>()) kinds.push_back(entry.kind);
    return kinds;
  }

  FakeView view_;
  std::vector<Job> jobs_{job_in(JobState::kRunning)};
  std::size_t changed_ = 0;
  std::vector<std::pair<JobId, JobAction>> actions_;
};

TEST_F(JobMachineTest, ExitReportEndsTheJobWithItsExitCode) {
  ASSERT_TRUE(make(0, Reported{.phase = wire::JobPhase::kExited, .exit_code = 7}));
  EXPECT_EQ(state_of(only()), RankState::kExited);
  EXPECT_EQ(only().exit_code, 7);
  EXPECT_THAT(logged(), ElementsAre("job-ended"));
}

TEST_F(JobMachineTest, LateDuplicateReportChangesNothing) {
  only().state = JobState::kExited;
  ASSERT_TRUE(make(0, StartAnswered()));
  ASSERT_TRUE(make(0, Reported{.phase = wire::JobPhase::kExited}));
  ASSERT_TRUE(make(0, Missing()));
  EXPECT_EQ(changed_, 0U);
  EXPECT_TRUE(actions_.empty());
}

TEST_F(JobMachineTest, OrderNotAllowedInTheStateIsRefused) {
  const auto refused = make(0, InstancesEnded());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kRefused);
  EXPECT_THAT(refused.error().to_string(), HasSubstr("train.0 (j1) is Running"));
}

TEST_F(JobMachineTest, TransitionMissingFromTheTableIsAnError) {
  only() = job_in(JobState::kStarting);
  ImageOperation operation;
  operation.stage = OperationStage::kTaking;
  const auto refused = make(0, OperationBegun{operation});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kInternal);
  EXPECT_FALSE(only().operation);
}

// ---- stops ----

TEST_F(JobMachineTest, StopThatWaitsForAnOperationIsStoredTogetherWithTheEndOfTheOperation) {
  only() = with_operation(only(), OperationStage::kEnding, OperationGoal::kParked);
  only().operation->stops = only().stop_requested = true;
  ASSERT_TRUE(make(0, InstancesEnded()));
  EXPECT_EQ(state_of(only()), RankState::kExited);
  EXPECT_EQ(only().exit_code, kExitOfStopped);
  EXPECT_THAT(logged(), ElementsAre("job-parked", "job-ended"));
}

TEST_F(JobMachineTest, ParkedRankEndsIfItsRequestedStopWasNotApplied) {
  only().state = JobState::kParked;
  only().stop_requested = true;
  std::vector<const Job*> ranks{&only()};
  const auto made = settle(ranks, view_, kNow);
  ASSERT_TRUE(made);
  ASSERT_EQ(made->changed.size(), 1U);
  EXPECT_EQ(state_of(made->changed.front()), RankState::kExited);
}

TEST_F(JobMachineTest, StopAppliesToARankInEachState) {
  const Job running = job_in(JobState::kRunning);
  const std::vector<std::pair<Job, RankState>> cases = {
      {job_in(JobState::kStarting), RankState::kStarting},
      {running, RankState::kRunning},
      {with_operation(running, OperationStage::kTaking, OperationGoal::kParked), RankState::kParking},
      {with_operation(running, OperationStage::kEnding), RankState::kEndingRest},
      {with_operation(running, OperationStage::kEnding, OperationGoal::kParked), RankState::kEndingRest},
      {with_operation(running, OperationStage::kStarting), RankState::kExited},
      {job_in(JobState::kParked), RankState::kExited}};
  for (const auto& [before, after] : cases) {
    only() = before;
    ASSERT_TRUE(make(0, Stop{5})) << to_string(state_of(before));
    EXPECT_EQ(state_of(only()), after) << to_string(state_of(before));
    EXPECT_TRUE(only().stop_requested) << to_string(state_of(before));
  }
}

TEST_F(JobMachineTest, StopOfAParkingRankCancelsItsSnapshot) {
  only() = with_operation(only(), OperationStage::kTaking, OperationGoal::kParked);
  ASSERT_TRUE(make(0, Stop{5}));
  ASSERT_EQ(performed<SnapshotCancelled>().size(), 1U);
  EXPECT_EQ(performed<SnapshotCancelled>().front().node, "a");
}

TEST_F(JobMachineTest, SecondStopSetsANewGracePeriod) {
  only() = with_operation(only(), OperationStage::kTaking, OperationGoal::kParked);
  ASSERT_TRUE(make(0, Stop{60'000}));
  ASSERT_TRUE(make(0, Stop{0}));
  view_.instances["a"] = {instance_of(only(), wire::JobPhase::kRunning)};
  ASSERT_TRUE(make(0, NotParked{Error(ErrorCode::kAborted, "given up")}));
  EXPECT_EQ(state_of(only()), RankState::kRunning);
  EXPECT_TRUE(only().stop_requested);
  EXPECT_EQ(only().stop_grace_ms, 0);
}

TEST_F(JobMachineTest, OnlyARestoreByAUserWithdrawsAStop) {
  only().stop_requested = true;
  ImageOperation restore;
  restore.by_user = false;
  EXPECT_EQ(make(0, OperationBegun{restore}).error().code(), ErrorCode::kRefused);
  restore.stage = OperationStage::kTaking;
  restore.goal = OperationGoal::kParked;
  EXPECT_EQ(make(0, OperationBegun{restore}).error().code(), ErrorCode::kRefused);
  EXPECT_TRUE(only().stop_requested);
  restore = ImageOperation();
  restore.by_user = true;
  ASSERT_TRUE(make(0, OperationBegun{restore}));
  EXPECT_FALSE(only().stop_requested);
}

TEST_F(JobMachineTest, RankBeingParkedEndsInsteadIfAStopIsPending) {
  only().stop_requested = true;
  ImageOperation rest;
  rest.goal = OperationGoal::kParked;
  rest.by_user = true;
  ASSERT_TRUE(make(0, OperationBegun{rest}));
  EXPECT_EQ(state_of(only()), RankState::kEndingRest);
  EXPECT_THAT(only().unfenced_nodes, ElementsAre("a"));
  ASSERT_TRUE(make(0, InstancesEnded()));
  EXPECT_EQ(state_of(only()), RankState::kExited);
}

TEST_F(JobMachineTest, RankLeftForItsImageEndsAsStoppedIfAStopWasRequested) {
  only().stop_requested = true;
  ASSERT_TRUE(make(0, LeftBehind()));
  EXPECT_EQ(only().exit_code, kExitOfStopped);
  only() = job_in(JobState::kRunning);
  ASSERT_TRUE(make(0, LeftBehind()));
  EXPECT_EQ(state_of(only()), RankState::kLost);
}

TEST_F(JobMachineTest, StopEndsALostJobThatIsBeingParked) {
  only().state = JobState::kLost;
  only() = with_operation(only(), OperationStage::kEnding, OperationGoal::kParked);
  only().operation->instance_ended = true;
  ASSERT_TRUE(make(0, Stop{5}));
  ASSERT_TRUE(make(0, InstancesEnded()));
  EXPECT_EQ(only().exit_code, kExitOfStopped);
}

// ---- proofs ----

TEST_F(JobMachineTest, InventoryWithoutAStartingInstanceDoesNotProveThatTheInstanceEnded) {
  only() = job_in(JobState::kStarting);
  only().stop_requested = true;
  ASSERT_TRUE(make(0, Missing()));
  EXPECT_EQ(state_of(only()), RankState::kExited);
  EXPECT_THAT(only().unfenced_nodes, ElementsAre("a"));
  EXPECT_FALSE(check_removable(only(), view_)) << "its node may be at an order to start it";
  ASSERT_TRUE(make(0, Proven{"a", 1}));
  EXPECT_TRUE(check_removable(only(), view_));
}

TEST_F(JobMachineTest, AnswerOfANodeWithALiveInstanceDoesNotProveThatTheJobEnded) {
  only().state = JobState::kExited;
  only().unfenced_nodes = {"a"};
  view_.instances["a"] = {instance_of(only(), wire::JobPhase::kRunning)};
  ASSERT_TRUE(make(0, Proven{"a", 1}));
  EXPECT_THAT(only().unfenced_nodes, ElementsAre("a"));
  view_.instances.clear();
  ASSERT_TRUE(make(0, Proven{"a", 0})) << "it was asked about an earlier incarnation";
  EXPECT_THAT(only().unfenced_nodes, ElementsAre("a"));
}

TEST_F(JobMachineTest, JobThatMayRunOnARemovedNodeIsKept) {
  ASSERT_TRUE(make(0, NodeRemoved{true}));
  EXPECT_EQ(state_of(only()), RankState::kLost);
  const auto kept = check_removable(only(), view_);
  ASSERT_FALSE(kept);
  EXPECT_THAT(kept.error().to_string(), HasSubstr("node rm a --force --fenced"));
  ASSERT_TRUE(make(0, NodeFenced{"a"}));
  EXPECT_TRUE(check_removable(only(), view_));
}

TEST_F(JobMachineTest, ReturningNodeWithoutTheLostInstanceProvesThatTheInstanceEnded) {
  only().state = JobState::kLost;
  only().unfenced = true;
  view_.away = {"a"};
  EXPECT_TRUE(due_orders(only(), nullptr, view_).empty());
  view_.away.clear();
  const auto due = due_orders(only(), nullptr, view_);
  ASSERT_EQ(due.size(), 1U);
  EXPECT_EQ(std::get<ProofOrder>(due[0]).node, "a");
  ASSERT_TRUE(make(0, Proven{"a", 1}));
  EXPECT_FALSE(only().unfenced);
  EXPECT_TRUE(check_removable(only(), view_));
}

// ---- images ----

TEST_F(JobMachineTest, NextIncarnationExceedsAllKnownIncarnations) {
  only().state = JobState::kParked;
  wire::JobInstance stray = instance_of(only(), wire::JobPhase::kRunning);
  stray.incarnation = 8;
  view_.instances["c"] = {stray};
  ImageOperation restore;
  restore.to_node = "b";
  restore.by_user = true;
  ASSERT_TRUE(make(0, OperationBegun{restore}));
  EXPECT_EQ(only().fenced, 8U);
  ASSERT_TRUE(make(0, InstancesEnded()));
  EXPECT_EQ(only().incarnation, 9U);
  EXPECT_EQ(only().segments.back(), Segment("b", 9));
}

TEST_F(JobMachineTest, AbandonedStartLeavesItsNodeUnfenced) {
  only() = with_operation(only(), OperationStage::kStarting);
  ImageOperation other;
  other.by_user = true;
  ASSERT_TRUE(make(0, OperationBegun{other}));
  EXPECT_THAT(only().unfenced_nodes, ElementsAre("b"));
  ASSERT_EQ(performed<TaskEnded>().size(), 1U);
  EXPECT_EQ(performed<TaskEnded>().front().error->message(), "Another order replaced this one");
}

TEST_F(JobMachineTest, LossOfARestoredRankIsNotReportedAsAnEndOnRequest) {
  only().ended_on_request = true;
  only() = with_operation(only(), OperationStage::kStarting);
  ASSERT_TRUE(make(0, RunsFromImage()));
  ASSERT_TRUE(make(0, Missing()));
  EXPECT_EQ(state_of(only()), RankState::kLost);
  EXPECT_FALSE(only().ended_on_request);
}

// ---- orders that are due ----

TEST_F(JobMachineTest, InstanceUpToTheFencedIncarnationMustEndImmediately) {
  only().fenced = 3;
  wire::JobInstance stray = instance_of(only(), wire::JobPhase::kRunning);
  stray.incarnation = 3;
  ASSERT_TRUE(fence_order(only().fenced, "c", stray));
  EXPECT_EQ(*fence_order(only().fenced, "c", stray), (EndOrder{"c", 3, 0}));
  stray.incarnation = 4;
  EXPECT_FALSE(fence_order(only().fenced, "c", stray));
  stray.incarnation = 3;
  stray.phase = wire::JobPhase::kExited;
  EXPECT_FALSE(fence_order(only().fenced, "c", stray));
}

TEST_F(JobMachineTest, StopEndsEveryRunningInstanceOnAConnectedNode) {
  only().stop_requested = true;
  only().stop_grace_ms = 7;
  wire::JobInstance stray = instance_of(only(), wire::JobPhase::kRunning);
  stray.incarnation = 4;
  view_.instances["a"] = {instance_of(only(), wire::JobPhase::kRunning)};
  view_.instances["b"] = {stray};
  view_.instances["c"] = {stray};
  view_.away = {"c"};
  const auto due = due_orders(only(), nullptr, view_);
  ASSERT_EQ(due.size(), 2U);
  EXPECT_EQ(std::get<EndOrder>(due[0]), (EndOrder{"a", 1, 7}));
  EXPECT_EQ(std::get<EndOrder>(due[1]), (EndOrder{"b", 4, 7}));
  only().stop_requested = false;
  EXPECT_TRUE(due_orders(only(), nullptr, view_).empty());
}

TEST_F(JobMachineTest, StopDuringAMoveIsSentOnlyToTheRunningSide) {
  only().stop_requested = true;
  Migration open;
  open.id = 5;
  open.from = Place("a", 0);
  open.to = Place("b", 0);
  open.base = 1;
  open.incarnation = 2;
  open.runs_at = Side::kTarget;
  view_.instances["a"] = view_.instances["b"] = {instance_of(only(), wire::JobPhase::kRunning)};
  const auto both = due_orders(only(), &open, view_);
  ASSERT_EQ(both.size(), 1U);
  EXPECT_EQ(std::get<AbortOrder>(both[0]).migration, 5U);
  view_.away = {"a"};
  const auto alone = due_orders(only(), &open, view_);
  ASSERT_EQ(alone.size(), 2U);
  EXPECT_EQ(std::get<EndOrder>(alone[1]).node, "b");
  open.incarnation = 1;
  open.runs_at = Side::kSource;  // the source waits at its barrier
  EXPECT_EQ(due_orders(only(), &open, view_).size(), 1U);
}

TEST_F(JobMachineTest, NodeWithALiveInstanceIsNotQueriedForProof) {
  only().state = JobState::kExited;
  only().unfenced_nodes = {"a", "b", "c"};
  view_.instances["a"] = {instance_of(only(), wire::JobPhase::kRunning)};
  view_.away = {"c"};
  const auto due = due_orders(only(), nullptr, view_);
  ASSERT_EQ(due.size(), 1U);
  EXPECT_EQ(std::get<ProofOrder>(due[0]).node, "b");
}

TEST_F(JobMachineTest, NoOrderIsSentWhileAnOperationEndsItsInstances) {
  only() = with_operation(only(), OperationStage::kEnding);
  only().stop_requested = true;
  only().unfenced_nodes = {"b"};
  EXPECT_TRUE(due_orders(only(), nullptr, view_).empty());
}

// ---- ranks ----

TEST_F(JobMachineTest, DeferredRulesDoNotChangeTheOtherRanks) {
  jobs_ = {job_in(JobState::kRunning, 0), job_in(JobState::kRunning, 1)};
  std::vector<const Job*> ranks{&jobs_[0], &jobs_[1]};
  const RankEvent events[] = {{0, Reported{.phase = wire::JobPhase::kExited, .exit_code = 3}}};
  EXPECT_EQ(step(ranks, events, view_, kNow, Rules::kLater)->changed.size(), 1U);
  EXPECT_EQ(step(ranks, events, view_, kNow)->changed.size(), 2U);
}

TEST_F(JobMachineTest, StopOfAllRanksIsNotReportedAsAFailureOfARank) {
  jobs_ = {job_in(JobState::kParked, 0), job_in(JobState::kRunning, 1)};
  std::vector<const Job*> ranks{&jobs_[0], &jobs_[1]};
  const RankEvent events[] = {{0, Stop{60'000}}, {1, Stop{60'000}}};
  const auto made = step(ranks, events, view_, kNow);
  ASSERT_TRUE(made);
  ASSERT_EQ(made->changed.size(), 2U);
  EXPECT_EQ(made->changed[1].stop_grace_ms, 60'000);
  for (const auto& [id, action] : made->actions) EXPECT_NE(std::get<LogEntry>(action).kind, "gang-ends");
}

TEST_F(JobMachineTest, RankIsParkedWithTheOtherRanksOnlyAfterItsOpenMove) {
  view_.images["j1.v1@b"] = Image();
  view_.open.emplace();
  jobs_ = {job_in(JobState::kParked, 0), job_in(JobState::kRunning, 1)};
  std::vector<const Job*> ranks{&jobs_[0], &jobs_[1]};
  EXPECT_TRUE(settle(ranks, view_, kNow)->changed.empty());
  view_.open.reset();
  EXPECT_EQ(settle(ranks, view_, kNow)->changed.size(), 1U);
}

TEST_F(JobMachineTest, FailedRankStopsTheOtherRanksInTheSameWrite) {
  jobs_ = {
      job_in(JobState::kRunning, 0), with_operation(job_in(JobState::kRunning, 1), OperationStage::kTaking),
      job_in(JobState::kParked, 2), with_operation(job_in(JobState::kRunning, 3), OperationStage::kStarting)};
  ASSERT_TRUE(make(0, Reported{.phase = wire::JobPhase::kExited, .exit_code = 3}));
  EXPECT_TRUE(jobs_[1].operation->stops);
  EXPECT_EQ(state_of(jobs_[2]), RankState::kExited);
  EXPECT_EQ(state_of(jobs_[3]), RankState::kExited);
  EXPECT_EQ(changed_, 4U);
  EXPECT_EQ(std::ranges::count(logged(), "gang-ends"), 1);
}

TEST_F(JobMachineTest, SuccessfulExitOfARankStopsNoOtherRank) {
  jobs_ = {job_in(JobState::kRunning, 0), job_in(JobState::kRunning, 1)};
  ASSERT_TRUE(make(0, Reported{.phase = wire::JobPhase::kExited, .exit_code = 0}));
  EXPECT_EQ(changed_, 1U);
}

TEST_F(JobMachineTest, RanksAreParkedAgainIfARankDidNotStart) {
  Image image;
  image.job = 3;
  view_.images["j1.v1@b"] = image;
  jobs_ = {with_operation(job_in(JobState::kRunning, 0), OperationStage::kStarting),
           with_operation(job_in(JobState::kRunning, 1), OperationStage::kStarting),
           job_in(JobState::kRunning, 2),
           with_operation(job_in(JobState::kRunning, 3), OperationStage::kEnding)};
  ASSERT_TRUE(make(0, NotStarted{Error(ErrorCode::kNotFound, "no such file")}));
  EXPECT_EQ(state_of(jobs_[0]), RankState::kParked);
  EXPECT_EQ(state_of(jobs_[1]), RankState::kParked);
  EXPECT_THAT(jobs_[1].unfenced_nodes, ElementsAre("b"));
  EXPECT_EQ(state_of(jobs_[2]), RankState::kEndingRest);
  EXPECT_EQ(state_of(jobs_[3]), RankState::kEndingRest);
}

TEST_F(JobMachineTest, RankWithAnUnknownImageIsReported) {
  jobs_ = {with_operation(job_in(JobState::kRunning, 0), OperationStage::kStarting),
           job_in(JobState::kRunning, 1)};
  ASSERT_TRUE(make(0, NotStarted{Error(ErrorCode::kNotFound, "no such file")}));
  EXPECT_EQ(state_of(jobs_[1]), RankState::kRunning);
  ASSERT_EQ(performed<Warning>().size(), 1U);
}

}  // namespace
}  // namespace ckpt::coordinator::lifecycle
