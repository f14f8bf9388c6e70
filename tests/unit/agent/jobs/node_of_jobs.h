// SPDX-License-Identifier: Apache-2.0
// A folder with everything that a job table needs, and instances that an earlier agent left there.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "agent/jobs/job_table.h"
#include "tests/unit/agent/support/temporary_folder.h"

namespace ckpt::agent {

// An owner that counts the calls of the jobs, and answers save_before_kill() as the test sets it.
class FakeOwner : public JobOwner {
 public:
  void job_changed(const std::shared_ptr<Job>& /*job*/) override { ++changes; }
  void known_again(const std::shared_ptr<Job>& /*job*/) override { ++known; }
  control::Task<Result<void>> save_before_kill(std::shared_ptr<Job> /*job*/) override {
    ++saves;
    co_return saved;
  }
  int changes = 0;
  int known = 0;
  std::atomic<int> saves = 0;
  Result<void> saved = ok();
};

class NodeOfJobs : public ::testing::Test {
 protected:
  NodeOfJobs() {
    config_.home = home_.path();
    config_.keeper_timeout = Milliseconds(10000);
    files_ = *FileWatch::create(io_.get_executor());
    environment_.emplace(
        JobEnvironment{config_, io_.get_executor(), *files_, "/nonexistent/keeper", owner_, records_});
  }
  std::string leave_instance(wire::JobId job, wire::Incarnation incarnation,
                             const std::string& context_gpu = "") {
    JobRecord record;
    record.context_gpu = context_gpu;
    record.spec.job = job;
    record.spec.incarnation = record.incarnation = incarnation;
    record.spec.ranks.emplace_back();
    return leave_instance(record);
  }
  std::string leave_instance(const JobRecord& record) {
    std::string folder = instance_folder(config_.jobs_folder(), record.spec.job, record.incarnation);
    std::filesystem::create_directories(folder);
    EXPECT_TRUE(write_job_record(folder, record));
    std::ofstream(folder + "/keeper.pid") << "4194303 1\n";  // the process id of a keeper that has ended
    return folder;
  }
  static JobRecord new_record() {
    JobRecord record;
    record.spec.job = record.spec.incarnation = record.incarnation = 1;
    record.spec.ranks.emplace_back();
    record.spec.argv = {"/bin/true"};
    record.spec.cwd = "/";
    return record;
  }

  TemporaryFolder home_;
  Config config_;
  asio::io_context io_;
  asio::thread_pool records_{1};
  std::shared_ptr<FileWatch> files_;
  FakeOwner owner_;
  std::optional<JobEnvironment> environment_;
};

}  // namespace ckpt::agent
