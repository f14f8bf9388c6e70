// SPDX-License-Identifier: Apache-2.0
// Tests of the target's session of one migration, with a migration mode and a keeper that the test plays.
#include "agent/migration/target_session.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "agent/jobs/job_table.h"
#include "tests/unit/agent/jobs/fake_keeper.h"
#include "tests/unit/agent/jobs/live_process.h"
#include "tests/unit/agent/jobs/played_keeper.h"
#include "tests/unit/agent/migration/fake_ports.h"
#include "tests/unit/agent/support/awaited.h"
#include "tests/unit/agent/support/loop.h"

namespace ckpt::agent {
namespace {

// A mode whose bring() and compare() wait for `go_on`. The instance runs at once, and every comparison is
// refused.
class SlowMode : public TargetMode {
 public:
  SlowMode(JobTable& jobs, AsyncEvent& go_on, std::vector<Nanos>& deadlines, int& freed)
      : jobs_(jobs), go_on_(go_on), deadlines_(deadlines), freed_(freed) {}
  std::shared_ptr<Job> find() override { return nullptr; }
  Task<Result<std::shared_ptr<Job>>> start() override { co_return std::shared_ptr<Job>(); }
  Task<Result<void>> ready(std::shared_ptr<Job>) override { co_return ok(); }
  Task<Result<std::shared_ptr<Job>>> bring() override {
    co_await wait();
    co_return jobs_.started_as(1, 2);
  }
  Task<Result<void>> compare(wire::Bytes) override {
    co_await wait();
    co_return Error(ErrorCode::kRefused, "The job does not fit this node");
  }
  [[nodiscard]] bool has_memory() const override { return true; }
  Task<Result<void>> import_memory(std::shared_ptr<Job>, std::vector<mover::RegionInfo>,
                                   std::vector<UniqueFd>) override {
    co_return ok();
  }
  Result<void> store_host_state(std::shared_ptr<Job>, HostState) override { return ok(); }
  Task<Result<void>> run(std::shared_ptr<Job>, RunOrder order, wire::TargetReport*) override {
    deadlines_.push_back(order.deadline);
    co_return ok();
  }
  [[nodiscard]] PauseWork pause_work(const Job&) const override { return PauseWork(PauseKind::kCooperative); }
  Task<> end(std::shared_ptr<Job>) override { co_return; }
  Task<> free(std::shared_ptr<Job>) override {
    ++freed_;
    co_return;
  }

 private:
  Task<bool> wait() { return go_on_.wait(std::chrono::steady_clock::now() + std::chrono::seconds(30)); }

  JobTable& jobs_;
  AsyncEvent& go_on_;
  std::vector<Nanos>& deadlines_;
  int& freed_;
};

// A mode whose instance an earlier agent has started.
class FoundMode : public SlowMode {
 public:
  FoundMode(JobTable& jobs, AsyncEvent& go_on, std::vector<Nanos>& deadlines, int& freed)
      : SlowMode(jobs, go_on, deadlines, freed), found_(jobs.started_as(1, 2)) {}
  std::shared_ptr<Job> find() override { return found_; }

 private:
  std::shared_ptr<Job> found_;
};

// A mode that loses the keeper in its first `losses` calls of run(). The keeper answers again after each.
class LosingMode : public SlowMode {
 public:
  LosingMode(JobTable& jobs, AsyncEvent& go_on, std::vector<Nanos>& deadlines, int& freed,
             asio::any_io_executor executor, std::function<void()> lose, std::function<void()> answer_again,
             int losses)
      : SlowMode(jobs, go_on, deadlines, freed),
        executor_(std::move(executor)),
        lose_(std::move(lose)),
        answer_again_(std::move(answer_again)),
        losses_(losses) {}
  Task<Result<void>> run(std::shared_ptr<Job> job, RunOrder order, wire::TargetReport* report) override {
    if (losses_ == 0) co_return co_await SlowMode::run(job, order, report);
    --losses_;
    lose_();
    while (!job->unknown()) {
      AsyncEvent nobody(executor_);
      co_await nobody.wait(std::chrono::steady_clock::now() + Milliseconds(1));
    }
    answer_again_();
    co_return Error(ErrorCode::kUnavailable, "The keeper closed the connection");
  }

 private:
  asio::any_io_executor executor_;
  std::function<void()> lose_;
  std::function<void()> answer_again_;
  int losses_;
};

class TargetSessionTest : public WithContext<NodeOfJobs> {
 protected:
  TargetSessionTest() {
    info_.migration = 9;
    info_.job = info_.base = 1;
  }
  // Creates the instance that SlowMode brings.
  std::string leave_instance() {
    JobRecord record;
    record.spec.job = 1;
    record.spec.incarnation = record.incarnation = 2;
    record.migration = info_.migration;
    record.spec.ranks.emplace_back();
    std::string folder = instance_folder(config_.jobs_folder(), 1, 2, info_.migration);
    std::filesystem::create_directories(folder);
    EXPECT_TRUE(write_job_record(folder, record));
    return folder;
  }
  std::shared_ptr<TargetSession> session(MigrationContext& context) {
    return std::make_shared<TargetSession>(
        context, events_, info_, std::make_unique<SlowMode>(context.jobs, go_on_, deadlines_, freed_));
  }
  // Returns a session whose keeper drops the connection at the first `losses` orders to run.
  std::shared_ptr<TargetSession> losing_session(MigrationContext& context,
                                                std::optional<PlayedKeeper>& keeper,
                                                const std::string& folder, int losses) {
    const auto lose = [&keeper] { keeper->go_away(); };
    const auto answer_again = [this, &keeper, folder] {
      std::filesystem::remove(folder + "/keeper.sock");
      keeper.emplace(io_, folder, local::Phase::kDumped);
    };
    return std::make_shared<TargetSession>(
        context, events_, info_,
        std::make_unique<LosingMode>(context.jobs, go_on_, deadlines_, freed_, io_.get_executor(), lose,
                                     answer_again, losses));
  }
  template <class Event>
  [[nodiscard]] int count() const {
    return count_of<Event>(events_.of_target);
  }
  migration::HandoverInfo info_;
  AsyncEvent go_on_{io_.get_executor()};
  std::vector<Nanos> deadlines_;
  int freed_ = 0;
};

TEST_F(TargetSessionTest, InstanceRunsUnderARenewedLeaseIfItsStartOutlastsTheFirstLease) {
  FakeKeeper keeper(leave_instance(), local::Phase::kDumped);
  JobTable jobs(*environment_);
  ASSERT_TRUE(run_until_done(io_, jobs.rediscover()));
  MigrationContext context = this->context(jobs);
  const auto session = this->session(context);
  session->perform(migration::RunInstance(2, 1000));
  session->perform(migration::RunInstance(2, 2000));
  run_ready(io_);
  session->perform(migration::RunInstance(2, 3000));
  go_on_.notify();
  // The second event belongs to the renewal.
  run_until(io_, [&] { return count<migration::InstanceRuns>() == 2; });
  EXPECT_EQ(deadlines_, (std::vector<Nanos>{3000, 3000}));

  const auto job = jobs.started_as(1, 2);
  ASSERT_TRUE(run_until_done(io_, job->stop(Milliseconds(0))));
  run_until(io_, [&] { return job->ended() && !job->keeper(); });
}

// The instance may run. If it were reported as dead, the source would continue beside it.
TEST_F(TargetSessionTest, AnInstanceWhoseKeeperDoesNotAnswerIsNotReportedAsDead) {
  const std::string folder = leave_instance();
  const LiveProcess process(folder);
  std::optional<PlayedKeeper> keeper;
  keeper.emplace(io_, folder, local::Phase::kDumped);
  JobTable jobs(*environment_);
  ASSERT_TRUE(run_until_done(io_, jobs.rediscover()));
  MigrationContext context = this->context(jobs);
  const auto session = losing_session(context, keeper, folder, 1);
  session->perform(migration::RunInstance(2, 1000));
  run_ready(io_);
  go_on_.notify();
  run_until(io_, [&] { return count<migration::InstanceRuns>() + count<migration::InstanceDied>() > 0; });
  EXPECT_EQ(count<migration::InstanceRuns>(), 1);
  EXPECT_EQ(count<migration::InstanceDied>(), 0);

  const auto job = jobs.started_as(1, 2);
  ASSERT_TRUE(run_until_done(io_, job->stop(Milliseconds(0))));
  run_until(io_, [&] { return job->ended() && !job->keeper(); });
}

// The coordinator would otherwise wait without end for an instance that never runs.
TEST_F(TargetSessionTest, AnInstanceWhoseKeeperIsLostAtEachOrderIsReportedAsDeadAfterItsEnd) {
  config_.keeper_timeout = Milliseconds(200);
  const std::string folder = leave_instance();
  const LiveProcess process(folder);
  std::optional<PlayedKeeper> keeper;
  keeper.emplace(io_, folder, local::Phase::kDumped);
  JobTable jobs(*environment_);
  ASSERT_TRUE(run_until_done(io_, jobs.rediscover()));
  MigrationContext context = this->context(jobs);
  const auto session = losing_session(context, keeper, folder, std::numeric_limits<int>::max());
  session->perform(migration::RunInstance(2, 1000));
  run_ready(io_);
  go_on_.notify();
  run_until(io_, [&] { return !events_.of_target.empty(); });
  EXPECT_EQ(count<migration::InstanceDied>(), 1);
  const auto job = jobs.started_as(1, 2);
  EXPECT_TRUE(job->ended()) << "the source continues although this instance may still run";
  run_until(io_, [&] { return !job->keeper(); });
  EXPECT_EQ(events_.of_target.size(), 1U);
}

// The instance is a rank of a gang. If its exit were reported as a death, the rank would run again.
TEST_F(TargetSessionTest, SuccessfulExitOfAProgramResumedByAnEarlierAgentIsReportedAsFinished) {
  FakeKeeper keeper(leave_instance(), local::Phase::kRunning);
  keeper.resumed_ns = 1;
  keeper.resumed_as = 2;
  keeper.wait_status = 0;
  JobTable jobs(*environment_);
  ASSERT_TRUE(run_until_done(io_, jobs.rediscover()));
  MigrationContext context = this->context(jobs);
  const auto session = std::make_shared<TargetSession>(
      context, events_, info_, std::make_unique<FoundMode>(jobs, go_on_, deadlines_, freed_));
  ASSERT_TRUE(run_until_done(io_, session->enter_gate(2, 0)));

  const auto job = jobs.started_as(1, 2);
  ASSERT_TRUE(run_until_done(io_, job->stop(Milliseconds(0))));
  run_until(io_, [&] { return job->ended() && !job->keeper(); });
  EXPECT_EQ(count<migration::InstanceFinished>(), 1);
  EXPECT_EQ(count<migration::InstanceDied>(), 0);
}

TEST_F(TargetSessionTest, FailedPreparationIsReportedAsARefusal) {
  JobTable jobs(*environment_);
  MigrationContext context = this->context(jobs);
  const auto session = this->session(context);
  session->perform(migration::PrepareStandby{});  // sent without a plan
  run_until(io_, [&] { return !events_.of_target.empty(); });
  EXPECT_EQ(count<migration::StandbyRefused>(), 1);
  session->perform(migration::FreeTarget{});
  run_until(io_, [&] { return freed_ == 1; });
  EXPECT_EQ(events_.of_target.size(), 1u);
}

TEST_F(TargetSessionTest, RefusedComparisonIsReportedAsAFailedCopy) {
  JobTable jobs(*environment_);
  MigrationContext context = this->context(jobs);
  const auto session = this->session(context);
  session->perform(migration::StartReceiving({}));
  go_on_.notify();
  run_until(io_, [&] { return !events_.of_target.empty(); });
  EXPECT_EQ(count<migration::EngineFailed>(), 1);
}

TEST_F(TargetSessionTest, FailureAfterFreeTargetIsNotReported) {
  JobTable jobs(*environment_);
  MigrationContext context = this->context(jobs);
  const auto session = this->session(context);
  session->perform(migration::StartReceiving({}));
  session->perform(migration::FreeTarget{});
  run_until(io_, [&] { return freed_ == 1; });
  go_on_.notify();
  run_ready(io_);
  EXPECT_TRUE(events_.of_target.empty());
}

// The source may be running the job by then.
TEST_F(TargetSessionTest, InstanceCreatedAfterFreeTargetIsFreedAndDoesNotRun) {
  FakeKeeper keeper(leave_instance(), local::Phase::kDumped);
  JobTable jobs(*environment_);
  ASSERT_TRUE(run_until_done(io_, jobs.rediscover()));
  MigrationContext context = this->context(jobs);
  const auto session = this->session(context);
  session->perform(migration::RunInstance(2, 1000));
  run_ready(io_);
  session->perform(migration::FreeTarget{});
  run_until(io_, [&] { return freed_ == 1; });
  go_on_.notify();
  run_until(io_, [&] { return freed_ == 2; });
  run_ready(io_);
  EXPECT_TRUE(deadlines_.empty());
  EXPECT_EQ(count<migration::InstanceRuns>(), 0);

  const auto job = jobs.started_as(1, 2);
  ASSERT_TRUE(run_until_done(io_, job->stop(Milliseconds(0))));
  run_until(io_, [&] { return job->ended() && !job->keeper(); });
}

}  // namespace
}  // namespace ckpt::agent
