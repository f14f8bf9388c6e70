// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/placement/move_placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ckpt::coordinator {
namespace {

using ::testing::HasSubstr;

GpuView view_of(const std::string& node, std::uint32_t gpu, std::uint64_t free_bytes) {
  GpuView view;
  view.place = Place(node, gpu);
  view.total_bytes = 100;
  view.free_bytes = free_bytes;
  return view;
}

PlacementRequest request_of(std::uint64_t bytes) {
  PlacementRequest request;
  request.memory_bytes = bytes;
  request.not_here = Place("a", 0);
  return request;
}

MovingJob moving_job() {
  MovingJob job;
  job.name = "train";
  job.from = Place("a", 0);
  return job;
}

TEST(MovePlacement, JobMovesToTheBestCandidate) {
  const MigratePlan plan = plan_move({view_of("a", 0, 90), view_of("b", 0, 20), view_of("c", 0, 80)},
                                     request_of(30), moving_job());
  EXPECT_EQ(plan.to, Place("c", 0)) << plan.reason;
  EXPECT_FALSE(plan.no_gpu);
}

TEST(MovePlacement, ObstacleOfTheJobIsReportedBeforeTheGpus) {
  MovingJob job = moving_job();
  job.obstacle = "it is paused";
  const MigratePlan passing = plan_move({view_of("b", 0, 80)}, request_of(30), job);
  EXPECT_EQ(passing.to, std::nullopt);
  EXPECT_EQ(passing.reason, "Job train cannot be moved: it is paused");
  EXPECT_TRUE(passing.passing);
  job.stays_put = true;
  EXPECT_FALSE(plan_move({view_of("b", 0, 80)}, request_of(30), job).passing);
}

TEST(MovePlacement, LackOfAGpuIsTemporaryIfNodesMayReturn) {
  std::vector<GpuView> gpus{view_of("b", 0, 80)};
  gpus.front().healthy = false;
  MovingJob job = moving_job();
  const MigratePlan plan = plan_move(gpus, request_of(30), job);
  EXPECT_TRUE(plan.no_gpu);
  EXPECT_FALSE(plan.passing);
  EXPECT_THAT(plan.reason, HasSubstr("No GPU can hold train: "));
  job.nodes_may_return = true;
  EXPECT_TRUE(plan_move(gpus, request_of(30), job).passing);
}

TEST(MovePlacement, JobDoesNotCountAgainstItsOwnNode) {
  std::vector<GpuView> gpus{view_of("a", 1, 80), view_of("b", 0, 80)};
  gpus[0].node_jobs = 1;
  const PlacementRequest request = request_of(30);
  EXPECT_EQ(rank_targets(gpus, request, Place("a", 0)).front().place, Place("a", 1));
  EXPECT_EQ(rank_targets(gpus, request, Place("c", 0)).front().place, Place("b", 0));
}

TEST(MovePlacement, PromisedMemoryIsNoLongerAvailable) {
  std::vector<GpuView> gpus{view_of("b", 0, 80), view_of("b", 1, 80)};
  count_promised({{Place("b", 0), 60}}, gpus);
  EXPECT_EQ(gpus[0].available_bytes(), 20U);
  EXPECT_EQ(gpus[0].jobs, 1U);
  EXPECT_EQ(gpus[1].jobs, 0U);
  EXPECT_EQ(gpus[1].node_jobs, 1U);
  EXPECT_EQ(plan_move(gpus, request_of(30), moving_job()).to, Place("b", 1));
}

TEST(MovePlacement, MemoryHeldByTheReturningJobCountsAsAvailable) {
  PlacementRequest request;
  request.memory_bytes = 60;
  ReturningJob job;
  job.name = "train";
  job.shown_bytes = job.expected_bytes = 50;
  const std::vector<GpuView> gpus{view_of("a", 0, 40)};
  EXPECT_EQ(plan_return(gpus, request, job).to, std::nullopt);
  job.held = Place("a", 0);
  EXPECT_EQ(plan_return(gpus, request, job).to, Place("a", 0));
}

TEST(MovePlacement, NodeOfTheImageIsPreferredUnlessItIsFull) {
  PlacementRequest request;
  request.memory_bytes = 30;
  ReturningJob job;
  job.name = "train";
  job.image_node = "b";
  EXPECT_EQ(plan_return({view_of("a", 0, 90), view_of("b", 0, 40)}, request, job).to, Place("b", 0));
  EXPECT_EQ(plan_return({view_of("a", 0, 90), view_of("b", 0, 20)}, request, job).to, Place("a", 0));
}

}  // namespace
}  // namespace ckpt::coordinator
