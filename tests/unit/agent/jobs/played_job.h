// SPDX-License-Identifier: Apache-2.0
// A job that runs, with a keeper that the test plays: job 1 as incarnation 1.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "agent/jobs/job_table.h"
#include "tests/unit/agent/jobs/node_of_jobs.h"
#include "tests/unit/agent/jobs/played_keeper.h"
#include "tests/unit/agent/support/loop.h"

namespace ckpt::agent {

class PlayedJob : public NodeOfJobs {
 protected:
  void SetUp() override {
    keeper_.emplace(io_, leave_instance(1, 1));
    jobs_.emplace(*environment_);
    ASSERT_TRUE(run_until_done(io_, jobs_->rediscover()));
    job_ = jobs_->running_as(1, 1);
    ASSERT_TRUE(job_);
    run_until(io_, [this] { return job_->instance().movable; });
  }
  void TearDown() override {
    if (!job_->ended()) {
      EXPECT_TRUE(run_until_done(io_, job_->stop(Milliseconds(0))));
    }
    run_until(io_, [this] { return job_->ended() && !job_->keeper(); });
  }
  void settle() { run_ready(io_); }

  std::optional<PlayedKeeper> keeper_;
  std::optional<JobTable> jobs_;
  std::shared_ptr<Job> job_;
};

}  // namespace ckpt::agent
