// SPDX-License-Identifier: Apache-2.0
// Tests of jobs' memory. The test plays the keepers. The driver is fake_nvml.cc, whose process 1 allocates 10
// bytes at each query for which it is ordered to.
#include "agent/jobs/job_memory.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>

#include "tests/unit/agent/jobs/fake_keeper.h"
#include "tests/unit/agent/jobs/node_of_jobs.h"
#include "tests/unit/agent/support/loop.h"

namespace ckpt::agent {
namespace {

constexpr std::uint32_t kCountedProcess = 1;

class JobMemoryTest : public NodeOfJobs {
 protected:
  JobMemoryTest() : driver_(::dlopen(FAKE_NVML, RTLD_NOW | RTLD_LOCAL)) {
    EXPECT_NE(driver_, nullptr);
    inventory_.emplace(io_, FAKE_NVML, std::chrono::milliseconds(10000));
    table_.emplace(*environment_);
    memory_.emplace(*table_, *inventory_, [this](wire::JobId) { return held_; });
  }
  void TearDown() override {
    memory_.reset();
    inventory_.reset();
    ::dlclose(driver_);
  }
  void driver_grows(int times) { *static_cast<int*>(::dlsym(driver_, "growths_left")) = times; }
  std::shared_ptr<Job> find_job() {
    EXPECT_TRUE(run_until_done(io_, table_->rediscover()));
    return table_->started_as(1, 1);
  }
  void sample() {
    const auto done = [](JobMemory& memory) -> Task<bool> {
      co_await memory.sample();
      co_return true;
    };
    run_until_done(io_, done(*memory_));
  }
  std::uint64_t known(const Job& job) {
    wire::JobInstance instance = job.instance();
    memory_->add_known(job, instance);
    return instance.ranks.at(0).device_bytes;
  }
  std::uint64_t counted(const Job& job) {
    wire::JobInstance instance = job.instance();
    memory_->count(job, instance);
    return instance.ranks.at(0).device_bytes;
  }
  void stop(const std::shared_ptr<Job>& job) {
    EXPECT_TRUE(run_until_done(io_, job->stop(Milliseconds(0))));
    run_until(io_, [&] { return job->ended() && !job->keeper(); });
  }

  void* driver_;
  bool held_ = false;
  std::optional<Inventory> inventory_;
  std::optional<JobTable> table_;
  std::optional<JobMemory> memory_;
};

// The keeper's own child, an init, holds no GPU memory.
TEST_F(JobMemoryTest, ProcessThatUsesTheGpuIsIncludedInTheMemory) {
  FakeKeeper keeper(leave_instance(1, 1), local::Phase::kRunning);
  keeper.session_pid = kCountedProcess;
  keeper.state_bytes = 5;
  const auto job = find_job();
  driver_grows(3);
  sample();
  EXPECT_EQ(job->gpu_process(), static_cast<pid_t>(kCountedProcess));
  EXPECT_EQ(counted(*job), 30U) << "the process has 25 bytes that are in no sum of its own";
  EXPECT_EQ(known(*job), 30U);
  EXPECT_EQ(job->instance().ranks.at(0).pid, 4711) << "users see the first process";
  stop(job);
}

TEST_F(JobMemoryTest, JobUnknownToTheDriverKeepsItsLastQueriedMemory) {
  FakeKeeper keeper(leave_instance(1, 1), local::Phase::kRunning);
  keeper.state_bytes = 50;
  const auto job = find_job();
  sample();
  EXPECT_EQ(counted(*job), 50U);
  keeper.state_bytes = 70;
  const auto refresh = [](std::shared_ptr<Job> of) -> Task<bool> {
    co_await of->refresh_summary();
    co_return true;
  };
  run_until_done(io_, refresh(job));
  EXPECT_EQ(known(*job), 70U);
  EXPECT_EQ(counted(*job), 50U) << "the driver's free memory does not lack it yet";
  stop(job);
}

TEST_F(JobMemoryTest, MigratingJobIsNotQueried) {
  std::atomic<int> queries = 0;
  FakeKeeper keeper(leave_instance(1, 1), local::Phase::kRunning);
  keeper.on_describe = [&] { ++queries; };
  const auto job = find_job();
  run_until(io_, [&] { return job->instance().movable; });
  const int before = queries;
  held_ = true;
  sample();
  EXPECT_EQ(queries, before);
  held_ = false;
  sample();
  EXPECT_GT(queries, before);
  stop(job);
}

TEST_F(JobMemoryTest, MemoryIsQueriedMoreOftenWhileAJobStarts) {
  JobRecord record = new_record();
  record.started_unix_ms = static_cast<std::uint64_t>(wall_clock_ms());
  FakeKeeper keeper(leave_instance(record), local::Phase::kRunning);
  EXPECT_EQ(memory_->interval(), std::chrono::seconds(5));
  const auto job = find_job();
  EXPECT_EQ(memory_->interval(), std::chrono::seconds(1));
  stop(job);
  EXPECT_EQ(memory_->interval(), std::chrono::seconds(5)) << "it has ended";
}

}  // namespace
}  // namespace ckpt::agent
