// SPDX-License-Identifier: Apache-2.0
// Tests of instances that an agent finds at its start, with a keeper that the test plays.
#include "agent/jobs/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "agent/host_process/processes/process_tree.h"

#include "agent/jobs/job_table.h"
#include "agent/jobs/log_reader.h"
#include "agent/jobs/log_times.h"
#include "tests/unit/agent/jobs/fake_keeper.h"
#include "tests/unit/agent/jobs/node_of_jobs.h"
#include "tests/unit/agent/jobs/played_keeper.h"
#include "tests/unit/agent/support/loop.h"

namespace ckpt::agent {
namespace {

class JobTest : public NodeOfJobs {};

TEST_F(JobTest, StoppedRestoredJobHasItsContextSavedBeforeTheKill) {
  for (const bool stopped : {true, false}) {
    owner_.saves = 0;
    bool saved_first = false;
    const wire::JobId id = stopped ? 1 : 2;
    FakeKeeper keeper(leave_instance(id, 1, "GPU-1"), local::Phase::kRunning,
                      [&] { saved_first = owner_.saves == 1; });
    JobTable table(*environment_);
    ASSERT_TRUE(run_until_done(io_, table.rediscover()));
    const auto job = table.started_as(id, 1);
    ASSERT_TRUE(job);
    if (stopped) {
      ASSERT_TRUE(run_until_done(io_, job->stop(Milliseconds(1000))));
    } else {
      const auto destroy = [](std::shared_ptr<Job> instance) -> Task<bool> {
        co_await instance->destroy();
        co_return true;
      };
      run_until_done(io_, destroy(job));
    }
    run_until(io_, [&] { return job->ended() && !job->keeper(); });
    EXPECT_TRUE(saved_first) << stopped;
    EXPECT_NE(job->end_reason().find("its context was saved before the kill"), std::string::npos)
        << job->end_reason();
    const auto remove = [](std::shared_ptr<Job> instance) -> Task<bool> {
      co_await instance->remove_folder();
      co_return true;
    };
    run_until_done(io_, remove(job));
  }
}

TEST_F(JobTest, ARunningKeeperIsFoundByItsSocket) {
  FakeKeeper keeper(leave_instance(1, 1), local::Phase::kRunning);
  JobTable table(*environment_);
  ASSERT_TRUE(run_until_done(io_, table.rediscover()));
  auto job = table.running_as(1, 1);
  ASSERT_TRUE(job);
  EXPECT_EQ(job->phase(), local::Phase::kRunning);
  run_until(io_, [&] { return job->instance().movable; });
  EXPECT_EQ(job->instance().ranks.at(0).state_bytes, 12345u);
  EXPECT_EQ(job->instance().ranks.at(0).pid, 4711);

  ASSERT_TRUE(run_until_done(io_, table.stop(1, 1, Milliseconds(0))));
  run_until(io_, [&] { return job->ended(); });
  EXPECT_EQ(job->instance().exit_code, 3);
  EXPECT_EQ(job->instance().phase, wire::JobPhase::kExited);
  run_until(io_, [&] { return !job->keeper(); });
}

TEST_F(JobTest, QueryDuringAnotherQueryReturnsANewAnswer) {
  std::promise<void> asked;
  std::promise<void> goes_on;
  FakeKeeper keeper(leave_instance(1, 1), local::Phase::kRunning);
  int queries = 0;
  keeper.on_describe = [&] {
    if (++queries > 1) return;
    keeper.state_bytes = 1;
    asked.set_value();
    goes_on.get_future().wait();
  };
  JobTable table(*environment_);
  ASSERT_TRUE(run_until_done(io_, table.rediscover()));
  const auto job = table.running_as(1, 1);
  ASSERT_TRUE(job);
  EXPECT_FALSE(job->is_silent()) << "it has not been asked yet";
  auto first = asked.get_future();
  run_until(io_, [&] { return first.wait_for(std::chrono::seconds(0)) == std::future_status::ready; });
  std::optional<std::uint64_t> answer;
  const auto ask = [](std::shared_ptr<Job> of, std::optional<std::uint64_t>* out) -> Task<> {
    co_await of->refresh_summary();
    *out = of->summary().state_bytes;
  };
  control::spawn(io_.get_executor(), "ask", ask(job, &answer));
  while (io_.poll() > 0) continue;
  EXPECT_FALSE(answer) << "the first query is not over";
  keeper.state_bytes = 2;
  goes_on.set_value();
  run_until(io_, [&] { return answer.has_value(); });
  EXPECT_EQ(answer, 2U);
  EXPECT_EQ(queries, 2);
  EXPECT_TRUE(run_until_done(io_, job->stop(Milliseconds(0))));
  run_until(io_, [&] { return job->ended() && !job->keeper(); });
}

TEST_F(JobTest, LoopContinuesWhileAContextRecordIsWritten) {
  const std::string folder = leave_instance(1, 1);
  FakeKeeper keeper(folder, local::Phase::kRunning);
  JobTable table(*environment_);
  ASSERT_TRUE(run_until_done(io_, table.rediscover()));
  const auto job = table.running_as(1, 1);
  ASSERT_TRUE(job);
  std::promise<void> disk;  // stands in for a slow disk
  asio::post(records_, [wait = disk.get_future().share()] { wait.wait(); });
  std::optional<Result<void>> written;
  const auto write = [](std::shared_ptr<Job> of, std::optional<Result<void>>* out) -> Task<> {
    out->emplace(co_await of->set_context_location("GPU-a", "GPU-b"));
  };
  control::spawn(io_.get_executor(), "write", write(job, &written));
  bool went_on = false;
  asio::post(io_, [&] { went_on = true; });
  run_until(io_, [&] { return went_on; });
  EXPECT_FALSE(written);
  EXPECT_EQ(read_job_record(folder)->context_gpu, "");
  disk.set_value();
  run_until(io_, [&] { return written.has_value(); });
  EXPECT_TRUE(written->has_value());
  EXPECT_EQ(read_job_record(folder)->context_gpu, "GPU-a");
  EXPECT_EQ(read_job_record(folder)->context_goes_to, "GPU-b");
  EXPECT_TRUE(run_until_done(io_, job->stop(Milliseconds(0))));
  run_until(io_, [&] { return job->ended() && !job->keeper(); });
}

TEST_F(JobTest, OldRecordDoesNotReplaceANewerRecord) {
  const std::string folder = leave_instance(1, 1);
  JobRecord record = *read_job_record(folder);
  JobRecordWriter writer(folder);
  record.context_gpu = "later";
  EXPECT_TRUE(writer.write(record, 2));
  record.context_gpu = "earlier";
  EXPECT_TRUE(writer.write(record, 1));
  EXPECT_EQ(read_job_record(folder)->context_gpu, "later");
}

TEST_F(JobTest, StatusOfAnExitedKeeperIsReadAfterARestart) {
  const std::string folder = leave_instance(1, 1);
  std::ofstream(folder + "/status.json") << R"({"state":"exited","exit_code":5})";
  JobTable table(*environment_);
  ASSERT_TRUE(run_until_done(io_, table.rediscover()));
  EXPECT_EQ(table.running_as(1, 1), nullptr);
  ASSERT_TRUE(table.started_as(1, 1));
  EXPECT_EQ(table.started_as(1, 1)->instance().exit_code, 5);
  const auto is_recorded = [&folder] {
    const auto record = read_job_record(folder);
    return record && record->ended;
  };
  run_until(io_, is_recorded);
}

// A keeper writes the exit to the status file before it sends the exit. The keeper may exit in between.
TEST_F(JobTest, ExitFoundOnlyInTheStatusFileReachesTheListeners) {
  const std::string folder = leave_instance(1, 1);
  PlayedKeeper keeper(io_, folder);
  JobTable table(*environment_);
  ASSERT_TRUE(run_until_done(io_, table.rediscover()));
  const auto job = table.running_as(1, 1);
  ASSERT_TRUE(job);
  run_until(io_, [&] { return job->instance().movable; });
  std::vector<std::int32_t> ends;
  job->listen([&ends](const local::Body& body) {
    if (const auto* exited = std::get_if<local::RankExited>(&body)) ends.push_back(exited->wait_status);
  });
  std::ofstream(folder + "/status.json") << R"({"state":"exited","exit_code":5})";
  keeper.go_away();
  run_until(io_, [&] { return job->ended() && !job->keeper(); });
  EXPECT_EQ(job->instance().exit_code, 5);
  EXPECT_THAT(ends, testing::ElementsAre(5 << 8));
}

TEST_F(JobTest, RankOfAMissingKeeperIsReportedAsKilled) {
  leave_instance(1, 1);
  JobTable table(*environment_);
  ASSERT_TRUE(run_until_done(io_, table.rediscover()));
  EXPECT_EQ(table.started_as(1, 1)->instance().exit_code, 137);
}

TEST_F(JobTest, InstanceThatNeverStartedIsRemovedAtAnAgentRestart) {
  const std::string folder = leave_instance(1, 1);
  std::filesystem::remove(folder + "/keeper.pid");
  JobTable table(*environment_);
  ASSERT_TRUE(run_until_done(io_, table.rediscover()));
  EXPECT_EQ(table.started_as(1, 1), nullptr) << "it is reported as ended, and was never run";
  EXPECT_FALSE(std::filesystem::exists(folder));
}

// A process that keeper.pid of `folder` names as the keeper. It sends nothing.
class MuteProcess {
 public:
  explicit MuteProcess(const std::string& folder) : pid_(::fork()) {
    if (pid_ == 0) {
      for (;;) ::pause();
    }
    std::ofstream(folder + "/keeper.pid") << pid_ << " " << host::start_ticks_of(pid_) << "\n";
  }
  ~MuteProcess() {
    kill();
    ::waitpid(pid_, nullptr, 0);
  }
  MuteProcess(const MuteProcess&) = delete;
  MuteProcess& operator=(const MuteProcess&) = delete;
  void kill() const { ::kill(pid_, SIGKILL); }

 private:
  pid_t pid_;
};

// The connection breaks, the rank exits, and the keeper reports the exit only in its next answer.
TEST_F(JobTest, ExitReportedInAKeeperAnswerReachesTheListeners) {
  const std::string folder = leave_instance(1, 1);
  const MuteProcess process(folder);
  std::optional<PlayedKeeper> keeper;
  keeper.emplace(io_, folder);
  JobTable table(*environment_);
  ASSERT_TRUE(run_until_done(io_, table.rediscover()));
  const auto job = table.running_as(1, 1);
  ASSERT_TRUE(job);
  run_until(io_, [&] { return job->instance().movable; });
  int ends = 0;
  job->listen(
      [&ends](const local::Body& body) { ends += std::holds_alternative<local::RankExited>(body) ? 1 : 0; });
  keeper->go_away();
  run_until(io_, [&] { return job->unknown(); });
  EXPECT_EQ(ends, 0);
  keeper.emplace(io_, folder, local::Phase::kExited);
  run_until(io_, [&] { return job->ended() && !job->keeper(); });
  EXPECT_EQ(ends, 1);
}

TEST_F(JobTest, SilentKeeperIsUnknownAndIsNotReplaced) {
  config_.keeper_timeout = Milliseconds(20);
  FakeKeeper keeper(
      leave_instance(1, 1), local::Phase::kRunning, [] {}, true);
  JobTable table(*environment_);
  ASSERT_TRUE(run_until_done(io_, table.rediscover()));
  auto job = table.running_as(1, 1);
  ASSERT_TRUE(job) << "it is recorded as ended, and may run";
  EXPECT_TRUE(job->unknown());
  EXPECT_FALSE(job->keeper());
  EXPECT_TRUE(job->instance().unknown);
  EXPECT_THAT(job->instance().reason, testing::HasSubstr("does not answer"));
  EXPECT_FALSE(read_job_record(job->folder())->ended);

  JobRecord other = new_record();
  other.incarnation = other.spec.incarnation = 2;
  auto second = run_until_done(io_, table.start(other));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), ErrorCode::kUnavailable);

  keeper.answer_now();
  run_until(io_, [&] { return !job->unknown(); });
  EXPECT_FALSE(job->ended());
  EXPECT_EQ(job->phase(), local::Phase::kRunning);
  ASSERT_TRUE(run_until_done(io_, table.stop(1, 1, Milliseconds(0))));
  run_until(io_, [&] { return job->ended() && !job->keeper(); });
  EXPECT_EQ(job->instance().exit_code, 3);
}

TEST_F(JobTest, KeeperWithoutASocketIsUnknownUntilItsProcessExits) {
  const MuteProcess keeper(leave_instance(1, 1));
  JobTable table(*environment_);
  ASSERT_TRUE(run_until_done(io_, table.rediscover()));
  auto job = table.running_as(1, 1);
  ASSERT_TRUE(job);
  EXPECT_TRUE(job->unknown());
  keeper.kill();
  run_until(io_, [&] { return !job->unknown(); });
  EXPECT_TRUE(job->ended());
  EXPECT_EQ(job->instance().exit_code, 137);
}

TEST_F(JobTest, StopOfAnUnknownInstanceKillsItsKeeperAfterTheGracePeriod) {
  const MuteProcess keeper(leave_instance(1, 1));
  JobTable table(*environment_);
  ASSERT_TRUE(run_until_done(io_, table.rediscover()));
  auto job = table.running_as(1, 1);
  ASSERT_TRUE(job);
  auto stopped = run_until_done(io_, table.stop(1, 1, Milliseconds(0)));
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code(), ErrorCode::kUnavailable);
  run_until(io_, [&] { return job->ended(); });
  EXPECT_EQ(job->instance().exit_code, 137);
}

TEST_F(JobTest, PidFileWithAnotherStartTimeMeansThatTheKeeperExited) {
  const std::string folder = leave_instance(1, 1);
  std::ofstream(folder + "/keeper.pid") << ::getpid() << " 1\n";
  JobTable table(*environment_);
  ASSERT_TRUE(run_until_done(io_, table.rediscover()));
  EXPECT_TRUE(table.started_as(1, 1)->ended());
}

TEST_F(JobTest, AnInstanceOfAnotherJobUnderTheSameIdIsNotAdopted) {
  const std::string folder = leave_instance(1, 1);
  JobTable table(*environment_);
  ASSERT_TRUE(run_until_done(io_, table.rediscover()));
  const auto there = table.started_as(1, 1);
  JobRecord same = new_record();
  same.spec = read_job_record(folder)->spec;
  auto repeated = run_until_done(io_, table.start(same));
  ASSERT_TRUE(repeated) << repeated.error().to_string();
  EXPECT_EQ(*repeated, there);

  JobRecord other = new_record();
  other.spec.name = "other";
  auto refused = run_until_done(io_, table.start(other));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kRefused);
  EXPECT_NE(refused.error().to_string().find("another job"), std::string::npos);
  EXPECT_EQ(table.all(), std::vector{there});
}

TEST_F(JobTest, FailedKeeperStartLeavesNoProcessAndReportsTheReason) {
  JobTable table(*environment_);
  auto job = run_until_done(io_, table.start(new_record()));
  ASSERT_FALSE(job);
  EXPECT_NE(job.error().to_string().find("/nonexistent/keeper"), std::string::npos);
  EXPECT_TRUE(table.all().empty());
}

TEST_F(JobTest, ExitOfAProgramIsReportedEvenIfItsKeeperNeverAnswered) {
  const std::string keeper = home_ / "keeper";
  std::ofstream(keeper) << "#!/bin/sh\necho '{\"state\":\"exited\",\"exit_code\":4}' > $2/status.json\n";
  std::filesystem::permissions(keeper, std::filesystem::perms::owner_all);
  environment_->keeper_program = keeper;
  JobTable table(*environment_);
  auto job = run_until_done(io_, table.start(new_record()));
  ASSERT_TRUE(job) << job.error().to_string();
  EXPECT_TRUE((*job)->ended());
  EXPECT_EQ((*job)->instance().exit_code, 4);
  EXPECT_GT(owner_.changes, 0);
}

TEST_F(JobTest, ErrorOfAFailedKeeperIsReportedAndNoJobIsAnnounced) {
  const std::string keeper = home_ / "keeper";
  std::ofstream(keeper) << "#!/bin/sh\necho 'no such program'\nexit 1\n";
  std::filesystem::permissions(keeper, std::filesystem::perms::owner_all);
  environment_->keeper_program = keeper;
  JobTable table(*environment_);
  auto job = run_until_done(io_, table.start(new_record()));
  ASSERT_FALSE(job);
  EXPECT_NE(job.error().to_string().find("no such program"), std::string::npos);
  EXPECT_EQ(owner_.changes, 0);
}

TEST_F(JobTest, AForgottenInstanceLeavesNoFolder) {
  const std::string folder = leave_instance(1, 1);
  JobTable table(*environment_);
  ASSERT_TRUE(run_until_done(io_, table.rediscover()));
  const auto forget = [](JobTable& of) -> Task<bool> {
    co_await of.forget(1);
    co_return true;
  };
  EXPECT_TRUE(run_until_done(io_, forget(table)));
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST_F(JobTest, RecordWrittenAfterTheFolderIsRemovedIsDropped) {
  const std::string folder = leave_instance(1, 1);
  JobRecordWriter writer(folder);
  ASSERT_TRUE(writer.remove_folder());
  std::filesystem::create_directories(folder);  // the folder of a successor
  EXPECT_TRUE(writer.write(new_record(), 1));
  EXPECT_FALSE(read_job_record(folder));
  EXPECT_TRUE(writer.remove_folder());
  EXPECT_TRUE(std::filesystem::exists(folder)) << "it is not this writer's any more";
}

// A coordinator that receives a report of a paused instance with a later incarnation than it knows treats
// that instance as the job.
TEST_F(JobTest, RestoredInstanceThatHasNotRunIsAStandby) {
  for (const bool ran : {false, true}) {
    JobRecord record = new_record();
    record.role = wire::JobRole::kStandby;
    record.spec.job = ran ? 2 : 1;
    record.incarnation = record.spec.incarnation = 2;
    record.migration = 9;
    const std::string folder = instance_folder(config_.jobs_folder(), record.spec.job, 2, 9);
    std::filesystem::create_directories(folder);
    ASSERT_TRUE(write_job_record(folder, record));
    FakeKeeper keeper(folder, local::Phase::kDumped);
    keeper.resumed_ns = ran ? 1 : 0;
    keeper.resumed_as = ran ? 4 : 2;
    JobTable table(*environment_);
    ASSERT_TRUE(run_until_done(io_, table.rediscover()));
    const auto job = table.started_as(record.spec.job, 2);
    ASSERT_TRUE(job);
    EXPECT_EQ(job->instance().phase, ran ? wire::JobPhase::kPaused : wire::JobPhase::kStandby);
    EXPECT_EQ(job->record().ran, ran);
    EXPECT_EQ(job->incarnation(), ran ? 4U : 2U) << "the keeper knows";
    const auto remove = [](JobTable& of, std::shared_ptr<Job> instance) -> Task<bool> {
      co_await of.remove(std::move(instance));
      co_return true;
    };
    EXPECT_TRUE(run_until_done(io_, remove(table, job)));
    run_until(io_, [&] { return !job->keeper(); });
  }
}

// The standby of an abandoned migration may still be ending while the next migration starts its own standby
// as the same incarnation.
TEST_F(JobTest, StandbysOfTwoMigrationsAreSeparate) {
  for (const wire::MigrationId migration : {9u, 10u}) {
    JobRecord record = new_record();
    record.role = wire::JobRole::kStandby;
    record.incarnation = record.spec.incarnation = 2;
    record.migration = migration;
    record.ended = migration == 9;
    record.exit_code = 137;
    const std::string folder = instance_folder(config_.jobs_folder(), 1, 2, migration);
    std::filesystem::create_directories(folder);
    ASSERT_TRUE(write_job_record(folder, record));
  }
  JobTable table(*environment_);
  ASSERT_TRUE(run_until_done(io_, table.rediscover()));
  const auto old_one = table.started_by(9, 1, 2);
  const auto new_one = table.started_by(10, 1, 2);
  ASSERT_TRUE(old_one && new_one);
  EXPECT_NE(old_one, new_one);
  EXPECT_EQ(table.started_as(1, 2), new_one);
  EXPECT_TRUE(table.superseded(*old_one));
  EXPECT_FALSE(table.superseded(*new_one));
  EXPECT_EQ(table.started_by(11, 1, 2), nullptr);
}

class LogTest : public JobTest {
 protected:
  LogTest() : keeper_(leave_instance(1, 1), local::Phase::kStandbyReady), table_(*environment_) {
    std::ofstream(instance_folder(config_.jobs_folder(), 1, 1) + "/out.log") << "hello";
    EXPECT_TRUE(run_until_done(io_, table_.rediscover()));
    job_ = table_.started_as(1, 1);
  }
  void TearDown() override {
    const auto end = [](JobTable& table) -> Task<bool> {
      co_return (co_await table.stop(1, 1, Milliseconds(0))).has_value();
    };
    run_until_done(io_, end(table_));
    run_until(io_, [&] { return job_->ended() && !job_->keeper(); });
  }
  wire::ReadLog request(std::uint64_t offset, std::int64_t follow_ns) {
    wire::ReadLog out;
    out.job = out.incarnation = 1;
    out.offset = offset;
    out.limit = 100;
    out.follow_ns = follow_ns;
    return out;
  }
  FakeKeeper keeper_;
  JobTable table_;
  std::shared_ptr<Job> job_;
};

TEST_F(LogTest, LogIsReadFromAnOffset) {
  auto data = run_until_done(io_, read_log(*environment_, job_, request(2, 0)));
  ASSERT_TRUE(data);
  EXPECT_EQ(data->bytes, "llo");
  EXPECT_FALSE(data->ended);
  data = run_until_done(io_, read_log(*environment_, job_, request(5, 0)));
  ASSERT_TRUE(data);
  EXPECT_EQ(data->bytes, "");
}

TEST_F(LogTest, OutputTimesAreStoredAndShown) {
  run_until(io_, [&] { return !read_log_times(job_->folder()).empty(); });
  wire::ReadLog wanted = request(0, 0);
  wanted.with_times = true;
  auto data = run_until_done(io_, read_log(*environment_, job_, wanted));
  ASSERT_TRUE(data);
  EXPECT_TRUE(data->bytes.ends_with("Z hello")) << data->bytes;
  EXPECT_EQ(data->next_offset(), 5U);
  wanted.since_ms = read_log_times(job_->folder()).back().time_ms + 1;
  data = run_until_done(io_, read_log(*environment_, job_, wanted));
  ASSERT_TRUE(data);
  EXPECT_EQ(data->bytes, "");
  EXPECT_EQ(data->offset, 5U);
}

TEST_F(LogTest, LogFollowReturnsWhenTheFileGrows) {
  asio::post(io_, [this] { std::ofstream(job_->log_path(), std::ios::app) << " world"; });
  auto data =
      run_until_done(io_, read_log(*environment_, job_, request(5, std::int64_t{60} * 1'000'000'000)));
  ASSERT_TRUE(data);
  EXPECT_EQ(data->bytes, " world");
}

TEST_F(LogTest, LogFollowReturnsWhenTheInstanceEnds) {
  const auto stop = [](JobTable& table) -> Task<> { (void)co_await table.stop(1, 1, Milliseconds(0)); };
  control::spawn(io_.get_executor(), "stop", stop(table_));
  auto data =
      run_until_done(io_, read_log(*environment_, job_, request(5, std::int64_t{60} * 1'000'000'000)));
  ASSERT_TRUE(data);
  EXPECT_TRUE(data->ended);
}

}  // namespace
}  // namespace ckpt::agent
