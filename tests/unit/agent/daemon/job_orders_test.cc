// SPDX-License-Identifier: Apache-2.0
// Orders of the coordinator to start a job, on a node without keepers.
#include "agent/daemon/job_orders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/unit/agent/migration/fake_ports.h"
#include "tests/unit/agent/support/loop.h"

namespace ckpt::agent {
namespace {

class JobOrdersTest : public WithContext<NodeOfJobs> {
 protected:
  void SetUp() override {
    MoverSettings settings;
    settings.program = "/nonexistent/mover";
    settings.log_path = home_ / "mover.log";
    gpus_.movers[0] = MoverProcess::create(io_.get_executor(), settings);
  }
  void TearDown() override { gpus_.movers[0]->stop(); }
  static wire::JobSpec order() {
    wire::JobSpec spec = new_record().spec;
    spec.uid = ::getuid();
    return spec;
  }
  Result<void> start(wire::JobSpec spec) { return run_until_done(io_, orders_.start(std::move(spec))); }

  JobTable jobs_{*environment_};
  Inventory inventory_{io_, "/nonexistent/nvml", std::chrono::seconds(20)};
  JobOrders orders_{{config_, *contexts_, jobs_, inventory_, gpus_}};
};

TEST_F(JobOrdersTest, OrderWithoutExactlyOneRankIsRefused) {
  wire::JobSpec spec = order();
  spec.ranks.emplace_back();
  EXPECT_EQ(start(spec).error().code(), ErrorCode::kNotSupported);
  spec.ranks.clear();
  EXPECT_EQ(start(spec).error().code(), ErrorCode::kNotSupported);
}

TEST_F(JobOrdersTest, OrderForAGpuThatTheNodeLacksIsRefused) {
  wire::JobSpec spec = order();
  spec.ranks.front().gpu_index = 1;
  EXPECT_EQ(start(spec).error().code(), ErrorCode::kNotFound);
}

TEST_F(JobOrdersTest, AdoptionOfAMissingProcessLeavesNothing) {
  wire::JobSpec spec = order();
  spec.mode = MigrationMode::kAdopted;
  spec.adopt_pid = 4194303;
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto adopted = start(spec);
    ASSERT_FALSE(adopted);
    EXPECT_THAT(adopted.error().to_string(), testing::HasSubstr("There is no process 4194303"));
    EXPECT_TRUE(jobs_.all().empty());
    const auto stopped = run_until_done(io_, jobs_.stop(1, 1, Milliseconds(0)));
    EXPECT_EQ(stopped.error().code(), ErrorCode::kNotFound) << "the instance must not stay reserved";
  }
}

}  // namespace
}  // namespace ckpt::agent
