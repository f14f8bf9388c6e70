// SPDX-License-Identifier: Apache-2.0
// Jobs that an earlier agent left. The test plays their keeper and both commit protocols.
#include "agent/migration/settling.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/unit/agent/jobs/played_keeper.h"
#include "tests/unit/agent/migration/fake_ports.h"
#include "tests/unit/agent/migration/fake_protocol.h"
#include "tests/unit/agent/support/loop.h"

namespace ckpt::agent {
namespace {

constexpr wire::MigrationId kMove = 9;

class SettlingTest : public WithContext<NodeOfJobs> {
 protected:
  void TearDown() override {
    if (!job_ || job_->ended()) return;
    EXPECT_TRUE(run_until_done(io_, job_->stop(Milliseconds(0))));
    run_until(io_, [this] { return job_->ended() && !job_->keeper(); });
  }
  static JobRecord standby() {
    JobRecord record = new_record();
    record.role = wire::JobRole::kStandby;
    record.migration = kMove;
    return record;
  }
  void find(const JobRecord& record, local::Phase phase) {
    keeper_.emplace(io_, leave_instance(record), phase);
    find_left();
  }
  void find_left() {
    jobs_.emplace(*environment_);
    ASSERT_TRUE(run_until_done(io_, jobs_->rediscover()));
    job_ = jobs_->started_as(1, 1);
    ASSERT_TRUE(job_);
    context_.emplace(context(*jobs_));
    settling_.emplace(*context_, protocols_);
  }
  RunningVoid settle() { return {io_, "the settling", settling_->after_restart()}; }
  void answer_resume() {
    const auto order = keeper_->receive<local::Resume>("the order to go on");
    EXPECT_EQ(order.body.incarnation, 1U);
    local::Running running;
    running.incarnation = 1;
    running.resumed_ns = 900;
    keeper_->answer(order.request, running);
  }

  FakeProtocol switches_;
  FakeProtocol gangs_;
  MoveProtocols protocols_{switches_, gangs_};
  std::optional<PlayedKeeper> keeper_;
  std::optional<JobTable> jobs_;
  std::shared_ptr<Job> job_;
  std::optional<MigrationContext> context_;
  std::optional<Settling> settling_;
};

TEST_F(SettlingTest, PausedJobThatNoMoveHoldsIsResumed) {
  find(new_record(), local::Phase::kPaused);
  auto settled = settle();
  answer_resume();
  settled.finish();
  EXPECT_FALSE(keeper_->is_asked()) << "it is resumed once";
}

TEST_F(SettlingTest, PausedJobThatEitherProtocolHoldsStaysPaused) {
  find(new_record(), local::Phase::kPaused);
  for (FakeProtocol* holder : {&switches_, &gangs_}) {
    holder->held = {1};
    settle().finish();
    EXPECT_FALSE(keeper_->is_asked());
    holder->held.clear();
  }
}

TEST_F(SettlingTest, CooperativeStandbyAtItsGateIsNotTreatedAsAPausedJob) {
  find(new_record(), local::Phase::kDumped);
  settle().finish();
  EXPECT_FALSE(keeper_->is_asked());
}

// The context cannot be placed again, because the node has no such GPU. The process still waits for its
// keeper.
TEST_F(SettlingTest, TransparentJobIsResumedEvenIfItsContextCannotBePlaced) {
  JobRecord record = new_record();
  record.spec.mode = MigrationMode::kTransparent;
  find(record, local::Phase::kPaused);
  auto settled = settle();
  answer_resume();
  settled.finish();
}

TEST_F(SettlingTest, StandbyThatNoRecordNamesIsRemoved) {
  find(standby(), local::Phase::kStandbyReady);
  const std::string folder = job_->folder();
  settle().finish();
  EXPECT_TRUE(jobs_->all().empty());
  EXPECT_FALSE(std::filesystem::exists(folder));
  run_until(io_, [this] { return job_->ended() && !job_->keeper(); });
}

TEST_F(SettlingTest, StandbyThatMayBeTheOnlyInstanceStays) {
  find(standby(), local::Phase::kStandbyReady);
  for (FakeProtocol* owner : {&switches_, &gangs_}) {
    owner->promised = {kMove};
    settle().finish();
    EXPECT_EQ(jobs_->all().size(), 1U);
    EXPECT_TRUE(owner->ended_standbys.empty());
    owner->promised.clear();
  }
}

TEST_F(SettlingTest, EndOfAPromisedStandbyIsReportedOnlyToItsProtocol) {
  JobRecord record = standby();
  record.ended = true;
  leave_instance(record);
  find_left();
  gangs_.promised = {kMove};
  settle().finish();
  EXPECT_EQ(gangs_.ended_standbys, std::vector{kMove});
  EXPECT_TRUE(switches_.ended_standbys.empty());
  EXPECT_EQ(jobs_->all().size(), 1U);
}

TEST_F(SettlingTest, MemoryThatArrivedForAnEarlierMoveIsWithdrawn) {
  keeper_.emplace(io_, leave_instance(new_record()));
  local::Status status;
  status.phase = local::Phase::kRunning;
  status.memory = local::MemoryState::kMapped;
  status.rank_pid = 4711;
  status.arrived_regions = 2;
  status.arrived_migration = kMove;
  keeper_->report(status);
  find_left();
  auto settled = settle();
  const auto order = keeper_->receive<local::Withdraw>("the withdrawal");
  EXPECT_EQ(order.body.migration, kMove);
  keeper_->answer(order.request, local::Done{});
  settled.finish();
}

TEST_F(SettlingTest, JobIsSettledOnceItIsKnownAndNoMoveIsOpen) {
  find(new_record(), local::Phase::kPaused);
  settling_->known_again(job_);
  EXPECT_FALSE(keeper_->is_asked()) << "the journal was not read yet";
  switches_.held = {1};
  settle().finish();
  switches_.held.clear();
  gangs_.open = {1};
  settling_->known_again(job_);
  EXPECT_FALSE(keeper_->is_asked()) << "its move decides";
  gangs_.open.clear();
  settling_->known_again(job_);
  answer_resume();
  run_ready(io_);
}

}  // namespace
}  // namespace ckpt::agent
