// SPDX-License-Identifier: Apache-2.0
// Tests of job placement over real sockets: dry runs with their reasons, expected memory, priorities,
// rebalance.
#include <gtest/gtest.h>

#include <algorithm>
#include <future>

#include "tests/unit/coordinator/support/cluster.h"
#include "tests/unit/coordinator/support/fake_agent.h"

namespace ckpt::coordinator::test {
namespace {

using nlohmann::json;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

class PlacingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cluster_.start();
    a_ = std::make_unique<FakeAgent>("node-a", cluster_.agent_address(), cluster_.agent_token());
    b_ = std::make_unique<FakeAgent>("node-b", cluster_.agent_address(), cluster_.agent_token());
  }
  void start_nodes() {
    a_->start();
    b_->start();
    cluster_.wait_for_event("node-ready", 2);
  }
  HttpAnswer submit(const json& more) {
    json body = {{"argv", {"./train"}}, {"cwd", "/tmp"}};
    body.update(more);
    return cluster_.post("/v1/jobs", body.dump());
  }
  json run(const std::string& name, const std::string& node) {
    const HttpAnswer answer = submit({{"name", name}, {"node", node}});
    EXPECT_EQ(answer.status, 201U) << answer.body;
    return answer.json();
  }
  // Waits for the end of the job. An agent's messages arrive in order, so its earlier messages have arrived,
  // too.
  void wait_for_the_end_of(FakeAgent& agent, std::uint64_t job) {
    agent.end_job(job, 0);
    cluster_.wait_for_event("job-ended");
  }
  static json reasons_of(const json& plan, const std::string& node) {
    for (const json& candidate : plan["candidates"]) {
      if (candidate["node"] == node) return candidate["reasons"];
    }
    return {};
  }
  static bool mentions(const json& reasons, const std::string& what) {
    return std::any_of(reasons.begin(), reasons.end(), [&](const json& reason) {
      return reason.get<std::string>().find(what) != std::string::npos;
    });
  }

  Cluster cluster_;
  std::unique_ptr<FakeAgent> a_;
  std::unique_ptr<FakeAgent> b_;
};

TEST_F(PlacingTest, DryRunStartsNoJobAndExplainsThePlacement) {
  a_->inventory.gpus[0].mig = true;
  b_->inventory.rack = "r7";
  start_nodes();
  const HttpAnswer answer = submit({{"dry_run", true}, {"gpu_memory_bytes", kGiB}});
  ASSERT_EQ(answer.status, 200U) << answer.body;
  const json plan = answer.json();
  EXPECT_EQ(plan["to"], "node-b:0");
  EXPECT_TRUE(plan["possible"].get<bool>());
  ASSERT_EQ(plan["candidates"].size(), 2U);
  EXPECT_TRUE(mentions(reasons_of(plan, "node-a"), "MIG"));
  EXPECT_TRUE(mentions(reasons_of(plan, "node-b"), "8.00 GiB free"));
  const json none = submit({{"dry_run", true}, {"gpu_memory_bytes", 100 * kGiB}}).json();
  EXPECT_FALSE(none["possible"].get<bool>());
  EXPECT_EQ(none["to"], nullptr);
  EXPECT_TRUE(mentions(reasons_of(none, "node-b"), "but the job needs 100.00 GiB"));
  EXPECT_EQ(none["candidates"][1]["cause"], "too small");
  EXPECT_EQ(plan["candidates"][0]["cause"], nullptr);
  EXPECT_EQ(a_->starts() + b_->starts(), 0U);
  EXPECT_TRUE(cluster_.get("/v1/jobs").json().empty());
  EXPECT_EQ(cluster_.get("/v1/nodes").json()[1]["rack"], "r7");
}

TEST_F(PlacingTest, TopologyIsShownAndAffectsPlacement) {
  a_->inventory.gpus.resize(3, a_->inventory.gpus[0]);
  for (std::uint32_t i = 0; i < 3; ++i) a_->inventory.gpus[i].index = i;
  wire::GpuPeer near;
  near.index = 0;
  near.nvlinks = 4;
  near.common_ancestor = 10;
  a_->inventory.gpus[2].peers = {near};
  a_->inventory.gpus[2].fabric = "f/1";
  start_nodes();
  run("train", "node-a");
  const json plan = cluster_.post("/v1/jobs/train/migrate", R"({"dry_run":true})").json();
  EXPECT_EQ(plan["to"], "node-a:2") << plan.dump(1);
  EXPECT_TRUE(mentions(plan["candidates"][0]["reasons"], "4 NVLink(s) to node-a:0"));
  const json shown = cluster_.get("/v1/gpus").json()[2]["topology"];
  EXPECT_EQ(shown["peers"], json::parse(R"([{"index":0,"nvlinks":4,"common_ancestor":10}])"));
  EXPECT_EQ(shown["fabric"], "f/1");
  EXPECT_EQ(shown["numa_node"], nullptr);
}

TEST_F(PlacingTest, ExpectedMemoryOfAJobIsItsPeakMemory) {
  b_->inventory.gpus[0].free_bytes = 2 * kGiB;
  start_nodes();
  run("train", "node-a");
  run("other", "node-a");
  a_->hold(1, 5 * kGiB);
  a_->hold(1, kGiB);
  wait_for_the_end_of(*a_, 2);
  const json job = cluster_.get("/v1/jobs/train").json();
  EXPECT_EQ(job["memory"]["now_bytes"], kGiB);
  EXPECT_EQ(job["memory"]["peak_bytes"], 5 * kGiB);
  EXPECT_EQ(job["expected_bytes"], 5 * kGiB);
  const json minutes = job["memory"]["minutes"];
  EXPECT_NE(std::find(minutes.begin(), minutes.end(), json(5 * kGiB)), minutes.end()) << minutes;
  const json gpu = cluster_.get("/v1/gpus").json()[0];
  EXPECT_EQ(gpu["expected_bytes"], 5 * kGiB);
  const json plan = cluster_.post("/v1/jobs/train/migrate", R"({"dry_run":true,"to":"node-b"})").json();
  EXPECT_FALSE(plan["possible"].get<bool>());
  EXPECT_TRUE(mentions(reasons_of(plan, "node-b"), "used 5.00 GiB at ")) << plan.dump(1);
  // The memory that the job held stays promised to it on its current node.
  const json next = submit({{"dry_run", true}, {"gpu_memory_bytes", 5 * kGiB}}).json();
  EXPECT_TRUE(mentions(reasons_of(next, "node-a"), "4.00 GiB that are reserved")) << next.dump(1);
  // The store retains the peak over a restart of the coordinator.
  cluster_.stop();
  cluster_.start();
  EXPECT_EQ(cluster_.get("/v1/jobs/train").json()["memory"]["peak_bytes"], 5 * kGiB);
}

TEST_F(PlacingTest, PrioritiesAreStored) {
  start_nodes();
  EXPECT_EQ(submit({{"name", "urgent"}, {"node", "node-a"}, {"priority", 7}}).json()["priority"], 7);
  EXPECT_EQ(run("plain", "node-a")["priority"], 0);
  EXPECT_EQ(submit({{"priority", 1001}}).status, 400U);
  cluster_.stop();
  cluster_.start();
  EXPECT_EQ(cluster_.get("/v1/jobs/urgent").json()["priority"], 7);
}

// Tests of a move that is requested while the target's agent is disconnected, or while its driver has not
// answered. The move begins once this obstacle has ended.
class MoveThatWaits : public PlacingTest {
 protected:
  std::future<HttpAnswer> move(const std::string& job, const std::string& to) {
    return std::async(std::launch::async, [this, job, to] {
      return cluster_.post("/v1/jobs/" + job + "/migrate", json({{"to", to}}).dump());
    });
  }
};

TEST_F(MoveThatWaits, WaitsForADisconnectedAgent) {
  start_nodes();
  run("one", "node-a");
  b_.reset();
  cluster_.wait_for_event("node-lost");
  auto moved = move("one", "node-b");
  b_ = std::make_unique<FakeAgent>("node-b", cluster_.agent_address(), cluster_.agent_token());
  b_->start();
  const HttpAnswer answer = moved.get();
  EXPECT_EQ(answer.status, 202U) << answer.body;
}

TEST_F(MoveThatWaits, WaitsForADriverThatDidNotAnswer) {
  b_->inventory.gpus[0].healthy = false;
  b_->inventory.gpus[0].health_reason = "The GPU driver did not answer within 2000 ms";
  start_nodes();
  run("one", "node-a");
  auto moved = move("one", "node-b");
  // The status requests ensure that the move is requested first. Only the client can detect that a request
  // waits.
  for (int i = 0; i < 200; ++i) ASSERT_EQ(cluster_.get("/v1/status").status, 200U);
  EXPECT_NE(moved.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  wire::Inventory answered;
  answered.inventory = b_->inventory;
  answered.inventory.gpus[0].healthy = true;
  answered.inventory.gpus[0].health_reason.clear();
  b_->post([this, answered] { b_->send(answered); });
  const HttpAnswer answer = moved.get();
  EXPECT_EQ(answer.status, 202U) << answer.body;
}

TEST_F(MoveThatWaits, DoesNotWaitForALostGpu) {
  b_->inventory.gpus[0].healthy = false;
  start_nodes();
  run("one", "node-a");
  const HttpAnswer answer = move("one", "node-b").get();
  EXPECT_EQ(answer.status, 409U) << answer.body;
  EXPECT_EQ(answer.body.find("waited for"), std::string::npos) << answer.body;
}

TEST_F(PlacingTest, RebalancePacksTwoGpusIntoOne) {
  start_nodes();
  run("one", "node-a");
  run("two", "node-b");
  const json plan = cluster_.post("/v1/rebalance").json();
  EXPECT_TRUE(plan["dry_run"].get<bool>());
  ASSERT_EQ(plan["moves"].size(), 1U) << plan.dump(1);
  EXPECT_EQ(plan["freed"].size(), 1U);
  EXPECT_EQ(cluster_.get("/v1/rebalance").status, 404U);
  EXPECT_TRUE(cluster_.get("/v1/migrations").json().empty());

  const HttpAnswer begun = cluster_.post("/v1/rebalance", R"({"apply":true})");
  ASSERT_EQ(begun.status, 202U) << begun.body;
  cluster_.wait_for_event("rebalance-ended");
  const json run = cluster_.get("/v1/rebalance").json();
  EXPECT_EQ(run["state"], "done") << run.dump(1);
  EXPECT_EQ(run["moves"][0]["state"], "done");
  EXPECT_EQ(run["moves"][0]["migration"], "m1");
  const json jobs = cluster_.get("/v1/jobs").json();
  EXPECT_EQ(jobs[0]["node"], jobs[1]["node"]);
  EXPECT_EQ(cluster_.get("/v1/migrations").json()[0]["reason"],
            "rebalance: frees " + run["freed"][0].get<std::string>());
  EXPECT_TRUE(cluster_.post("/v1/rebalance").json()["moves"].empty());
}

TEST_F(PlacingTest, RebalanceStopsAtTheFirstFailedMove) {
  a_->refuse_prepare = b_->refuse_prepare = true;
  start_nodes();
  run("one", "node-a");
  run("two", "node-b");
  ASSERT_EQ(cluster_.post("/v1/rebalance", R"({"apply":true})").status, 202U);
  cluster_.wait_for_event("rebalance-ended");
  const json run = cluster_.get("/v1/rebalance/watch?since=0").json();
  EXPECT_EQ(run["state"], "failed");
  EXPECT_EQ(run["moves"][0]["state"], "failed");
  EXPECT_NE(run["moves"][0]["error"].get<std::string>().find("shapes differ"), std::string::npos);
  EXPECT_EQ(cluster_.get("/v1/jobs/one").json()["state"], "running");
  EXPECT_EQ(cluster_.get("/v1/jobs/one").json()["node"], "node-a");
}

TEST_F(PlacingTest, RebalanceRefusesInvalidRequests) {
  start_nodes();
  EXPECT_EQ(cluster_.post("/v1/rebalance", R"({"apply":1})").status, 400U);
  EXPECT_EQ(cluster_.post("/v1/rebalance", R"({"parallel":0})").status, 400U);
  EXPECT_EQ(cluster_.post("/v1/rebalance/dance").status, 404U);
  EXPECT_EQ(cluster_.get("/v1/rebalance/watch").status, 404U);
  EXPECT_EQ(cluster_.post("/v1/rebalance", R"({"apply":true})").status, 202U);
  cluster_.wait_for_event("rebalance-ended");
  EXPECT_EQ(cluster_.get("/v1/rebalance").json()["state"], "done");  // there is nothing to balance
}

}  // namespace
}  // namespace ckpt::coordinator::test
