// SPDX-License-Identifier: Apache-2.0
// A table of jobs with its store in a folder of the test's own; reopen() is a restart of the coordinator.
// Threads: one. Ownership: everything, until the test's end.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <optional>
#include <string>

#include "coordinator/fleet/job_admission.h"

namespace ckpt::coordinator {

struct FakeMigrations : MigrationQueries {
  bool open = false;
  bool closing = false;
  [[nodiscard]] bool has_open(JobId) const override { return open; }
  [[nodiscard]] bool is_closing(JobId) const override { return closing; }
};

class JobTableFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/jobsXXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    reopen();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void reopen() {
    admission_.reset();
    lifecycle_.reset();
    jobs_.reset();
    events_.reset();
    store_.reset();
    store_.emplace(Store::open(folder_ + "/state.db").value());
    events_.emplace(*store_, io_.get_executor());
    jobs_.emplace(*store_, io_.get_executor());
    lifecycle_.emplace(*jobs_, *events_, migrations_);
    admission_.emplace(*jobs_, *lifecycle_, *events_);
    ASSERT_TRUE(jobs_->load());
  }

  control::asio::io_context io_{1};
  std::string folder_;
  FakeMigrations migrations_;
  std::optional<Store> store_;
  std::optional<EventLog> events_;
  std::optional<JobTable> jobs_;
  std::optional<JobLifecycle> lifecycle_;
  std::optional<JobAdmission> admission_;
};

}  // namespace ckpt::coordinator
