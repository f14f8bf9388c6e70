// SPDX-License-Identifier: Apache-2.0
// The GPUs of a node whose driver the test plays (gpus/fake_nvml.cc): one GPU, number 0.
#include "agent/daemon/node_gpus.h"

#include <gtest/gtest.h>

#include "tests/unit/agent/support/awaited.h"

namespace ckpt::agent {
namespace {

class NodeGpusTest : public ::testing::Test {
 protected:
  NodeGpusTest() {
    config_.node = "node-a";
    config_.home = "/nonexistent";
  }
  void ask_driver() { RunningVoid(io_, "the query", inventory_.refresh()).finish(); }

  asio::io_context io_;
  Config config_;
  Inventory inventory_{io_, FAKE_NVML, std::chrono::seconds(20)};
  NodeGpus gpus_{io_.get_executor(), config_, inventory_, {}, "/nonexistent/mover"};
};

TEST_F(NodeGpusTest, GpuHasOneMover) {
  ask_driver();
  const auto mover = gpus_.mover_of(0);
  ASSERT_TRUE(mover);
  EXPECT_EQ(*gpus_.mover_of(0), *mover);
  EXPECT_EQ(gpus_.movers().size(), 1U);
}

TEST_F(NodeGpusTest, GpuThatTheDriverDoesNotNameGetsNoMover) {
  ask_driver();
  const auto mover = gpus_.mover_of(1);
  ASSERT_FALSE(mover);
  EXPECT_EQ(mover.error().code(), ErrorCode::kNotFound);
  EXPECT_NE(mover.error().to_string().find("Node node-a has no GPU 1"), std::string::npos);
  EXPECT_TRUE(gpus_.movers().empty()) << "a refused number must leave no entry";
}

TEST_F(NodeGpusTest, EveryGpuGetsAMoverBeforeTheFirstAnswerOfTheDriver) {
  const auto early = gpus_.mover_of(1);
  ASSERT_TRUE(early) << "a restarted agent finds jobs before its driver answers";
  ask_driver();
  EXPECT_EQ(*gpus_.mover_of(1), *early);
}

TEST_F(NodeGpusTest, GpuIsNamedAsTheDriverNamesIt) {
  EXPECT_EQ(gpus_.model_of(0).error().code(), ErrorCode::kNotFound);
  ask_driver();
  ASSERT_TRUE(gpus_.model_of(0));
  EXPECT_EQ(*gpus_.model_of(0), "fake");
  EXPECT_EQ(gpus_.model_of(1).error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(gpus_.identity_of(1).error().code(), ErrorCode::kNotFound);
}

}  // namespace
}  // namespace ckpt::agent
