// SPDX-License-Identifier: Apache-2.0
#include "coordinator/images/operations/open_operations.h"

#include <gtest/gtest.h>

namespace ckpt::coordinator {
namespace {

class OpenOperationsTest : public ::testing::Test {
 protected:
  TaskId begin_task() {
    Job job;
    job.id = 1;
    return tasks_.begin("suspend", job, "copying").id;
  }

  control::asio::io_context io_{1};
  Config config_;
  ImageTasks tasks_{io_.get_executor(), 0};
  JobActions actions_;
  OpenOperations open_{config_, tasks_, actions_};
};

TEST_F(OpenOperationsTest, AnOperationHasOneDriverUntilTheDriverEnds) {
  EXPECT_TRUE(open_.begin_to_drive(1));
  EXPECT_FALSE(open_.begin_to_drive(1));
  EXPECT_TRUE(open_.begin_to_drive(2));
  open_.end_to_drive(1);
  EXPECT_TRUE(open_.begin_to_drive(1));
}

TEST_F(OpenOperationsTest, TaskOutlivesTheDriverAndClosesOnce) {
  const TaskId task = begin_task();
  open_.show(1, task);
  open_.begin_to_drive(1);
  open_.end_to_drive(1);
  EXPECT_EQ(open_.task_id(1), task);
  open_.close(1, Error(ErrorCode::kAborted, "first"), 2);
  open_.close(1, std::nullopt, 0);
  EXPECT_EQ(open_.task_id(1), 0U);
  EXPECT_FALSE(tasks_.find(task)->open);
  EXPECT_EQ(tasks_.find(task)->exit_code, 2);
}

TEST_F(OpenOperationsTest, TaskReportsTheImageOfTheParkedJob) {
  const TaskId task = begin_task();
  open_.show(1, task);
  Image image;
  image.version = 7;
  actions_.notify(1, lifecycle::TaskEnded{.image = image});
  EXPECT_FALSE(tasks_.find(task)->open);
  EXPECT_EQ(tasks_.find(task)->exit_code, 0);
  EXPECT_EQ(tasks_.find(task)->image->version, 7U);
}

TEST_F(OpenOperationsTest, OperationExpiresAtItsDeadline) {
  EXPECT_FALSE(open_.is_expired(1));
  EXPECT_EQ(open_.time_left(1), OpenOperations::kLongest);
  config_.image_timeout_ms = 0;
  open_.begin_to_drive(1);
  EXPECT_TRUE(open_.is_expired(1));
  EXPECT_EQ(open_.time_left(1), std::chrono::milliseconds(1));
  open_.end_to_drive(1);
  EXPECT_FALSE(open_.is_expired(1));
}

TEST_F(OpenOperationsTest, DisconnectedCheckpointStoreIsReportedAsTheReason) {
  config_.checkpoint_store_timeout_ms = 0;
  Job job;
  job.id = 1;
  job.operation.emplace();
  job.operation->image.node = "b";
  open_.begin_to_drive(1);
  EXPECT_FALSE(open_.is_expired(1));
  open_.checkpoint_store_is_away(1);
  EXPECT_TRUE(open_.is_expired(1));
  EXPECT_NE(open_.why_given_up(job).message().find("checkpoint store of b"), std::string::npos);
  open_.checkpoint_store_answers(1);
  EXPECT_FALSE(open_.is_expired(1));
  job.operation->cancelled = "stopped";
  EXPECT_EQ(open_.why_given_up(job).message(), "stopped");
}

}  // namespace
}  // namespace ckpt::coordinator
