// SPDX-License-Identifier: Apache-2.0
// A job that does not fit parks jobs of lower priority, over real sockets, with an agent and a vault that do nothing.
#include <gtest/gtest.h>

#include <future>

#include "tests/unit/coordinator/cluster.h"
#include "tests/unit/coordinator/fake_vault.h"

namespace ckpt::coordinator::test {
namespace {

using nlohmann::json;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

class OvercommitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cluster_.start();
    agent_ = std::make_unique<FakeAgent>("node-a", cluster_.agent_address(), cluster_.agent_token());
    vault_ = std::make_unique<FakeVault>(*agent_, "node-a", std::make_shared<SharedFolders>());
    agent_->start();
    cluster_.wait_for_event("node-ready");
  }
  void TearDown() override { agent_.reset(); }
  HttpAnswer run(const std::string& name, int priority, std::uint64_t bytes, bool preempt) {
    const json body = {
        {"argv", {"./train"}},       {"cwd", "/tmp"},     {"name", name}, {"priority", priority},
        {"gpu_memory_bytes", bytes}, {"preempt", preempt}};
    return cluster_.post("/v1/jobs", body.dump());
  }
  std::string state(const std::string& job) { return cluster_.get("/v1/jobs/" + job).json()["state"]; }

  Cluster cluster_;
  std::unique_ptr<FakeAgent> agent_;
  std::unique_ptr<FakeVault> vault_;
};

TEST_F(OvercommitTest, TheLowerOneIsParkedAndTheHigherOneRuns) {
  ASSERT_EQ(run("low", 0, 6 * kGiB, false).status, 201U);
  ASSERT_EQ(run("high", 5, 6 * kGiB, false).status, 409U);  // not without --preempt
  // What the parked one held is free already: it had been promised, not taken.
  const HttpAnswer high = run("high", 5, 6 * kGiB, true);
  ASSERT_EQ(high.status, 201U) << high.body;
  EXPECT_EQ(state("low"), "parked");
  EXPECT_EQ(state("high"), "running");
  EXPECT_EQ(vault_->snapshots, 1U);
}

TEST_F(OvercommitTest, NobodyIsParkedForAnEqual) {
  ASSERT_EQ(run("one", 3, 6 * kGiB, false).status, 201U);
  const HttpAnswer equal = run("two", 3, 6 * kGiB, true);
  EXPECT_EQ(equal.status, 409U);
  EXPECT_NE(equal.body.find("priority below 3 would not help"), std::string::npos) << equal.body;
  EXPECT_EQ(state("one"), "running");
  EXPECT_EQ(vault_->snapshots, 0U);
}

TEST_F(OvercommitTest, WhoCannotBeParkedRunsOn) {
  vault_->refuse_snapshots = true;
  ASSERT_EQ(run("low", 0, 6 * kGiB, false).status, 201U);
  EXPECT_NE(run("high", 5, 6 * kGiB, true).status, 201U);
  EXPECT_EQ(state("low"), "running");
}

TEST_F(OvercommitTest, WhoEndsWhileItIsParkedLeavesItsRoom) {
  vault_->refuse_snapshots = true;  // as a job's that ends under it
  const HttpAnswer low = run("low", 0, 6 * kGiB, false);
  ASSERT_EQ(low.status, 201U);
  auto high = std::async(std::launch::async, [this] { return run("high", 5, 6 * kGiB, true); });
  cluster_.wait_for_event("snapshot-failed");
  agent_->end_job(1, 0);
  const HttpAnswer started = high.get();
  EXPECT_EQ(started.status, 201U) << started.body;
  EXPECT_EQ(state("low"), "exited");
  EXPECT_EQ(state("high"), "running");
}

}  // namespace
}  // namespace ckpt::coordinator::test
