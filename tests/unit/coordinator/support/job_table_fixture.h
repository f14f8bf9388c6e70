// SPDX-License-Identifier: Apache-2.0
// A table of jobs with its store in a folder of the test; reopen() is a restart of the coordinator.
// Threads: one. Ownership: everything, until the test's end.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <optional>
#include <string>

#include "coordinator/fleet/job_admission.h"
#include "tests/unit/coordinator/support/fake_job_view.h"

namespace ckpt::coordinator {

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
    job_runner_.reset();
    jobs_.reset();
    events_.reset();
    store_.reset();
    store_.emplace(Store::open(folder_ + "/state.db").value());
    events_.emplace(*store_, io_.get_executor());
    jobs_.emplace(*store_, io_.get_executor());
    job_runner_.emplace(*jobs_, *events_, view_);
    admission_.emplace(*jobs_, *job_runner_, *events_);
    ASSERT_TRUE(jobs_->load());
  }

  control::asio::io_context io_{1};
  std::string folder_;
  FakeView view_;
  std::optional<Store> store_;
  std::optional<EventLog> events_;
  std::optional<JobTable> jobs_;
  std::optional<JobRunner> job_runner_;
  std::optional<JobAdmission> admission_;
};

}  // namespace ckpt::coordinator
