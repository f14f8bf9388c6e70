// SPDX-License-Identifier: Apache-2.0
// Tests that requests about a job and the results of a migration are durable: stops, and the incarnation that
// a job continues as.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>

#include "coordinator/state/store.h"
#include "libckpt/base/clock.h"
#include "tests/unit/coordinator/support/cluster.h"
#include "tests/unit/coordinator/support/fake_agent.h"
#include "tests/unit/coordinator/support/migration_when.h"

namespace ckpt::coordinator::test {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kDeadline{30};

// A record of whether and when an agent was ordered to stop a job.
class Told {
 public:
  void listen_at(FakeAgent& agent) {
    agent.on_other = [this](const wire::FrameHeader& header, std::span<const std::byte>) {
      if (header.type == wire::FrameType::kStopJob && !said_.exchange(true)) heard_.set_value();
    };
  }
  [[nodiscard]] bool said() const { return said_; }
  [[nodiscard]] bool comes() { return heard_.get_future().wait_for(kDeadline) == std::future_status::ready; }

 private:
  std::atomic<bool> said_{false};
  std::promise<void> heard_;
};

class StopTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cluster_.start();
    a_ = agent("node-a");
    b_ = agent("node-b");
  }
  std::unique_ptr<FakeAgent> agent(const std::string& node) {
    return std::make_unique<FakeAgent>(node, cluster_.agent_address(), cluster_.agent_token());
  }
  void start_nodes() {
    a_->start();
    b_->start();
    cluster_.wait_for_event("node-ready", 2);
  }
  void run_job(const std::string& on = "node-a") {
    const auto answer =
        cluster_.post("/v1/jobs", R"({"argv":["./train"],"cwd":"/tmp","name":"train","node":")" + on + "\"}");
    ASSERT_EQ(answer.status, 201U) << answer.body;
  }
  std::string migrate() {
    const auto answer = cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b"})");
    EXPECT_EQ(answer.status, 202U) << answer.body;
    return answer.json()["id"];
  }
  json closed(const std::string& id) { return closed_migration(cluster_, id); }
  json job(const std::string& name = "train") { return cluster_.get("/v1/jobs/" + name).json(); }
  // Returns the ended job. The test fails if the job does not end within 30 s.
  json ended_job(const std::string& name = "train") {
    return cluster_.get("/v1/jobs/" + name + "/wait?timeout_ms=30000").json();
  }
  // Changes the store of a coordinator that does not run.
  void change_store(const char* sql) {
    auto store = Store::open(cluster_.settings().folder() + "/state.db");
    ASSERT_TRUE(store) << store.error().to_string();
    const auto changed = store->database().execute(sql);
    ASSERT_TRUE(changed) << changed.error().to_string();
  }
  // Returns the agent of a node that was disconnected, with an instance that has continued to run meanwhile.
  std::unique_ptr<FakeAgent> returning(const std::string& node) {
    auto back = agent(node);
    wire::JobInstance& instance = back->inventory.jobs.emplace_back();
    instance.job = 1;
    instance.incarnation = 1;
    instance.phase = wire::JobPhase::kRunning;
    instance.movable = true;
    instance.ranks.emplace_back();
    return back;
  }
  // Makes the target run the job while the source waits at its barrier. The source continues from there when
  // the target has reported that it gave up.
  void hold_at_runs() {
    a_->instead = [this](const wire::CommitMessage& m) {
      if (std::holds_alternative<wire::Ran>(m.body)) return true;
      const auto* end = std::get_if<wire::Closed>(&m.body);
      if (end != nullptr && end->side == wire::Side::kSource)
        a_->send_commit(m, wire::Role::kSource, wire::Role::kCoordinator, wire::Resumed(m.base, true, false));
      return end != nullptr;
    };
  }

  Cluster cluster_;
  Told told_a_;
  Told told_b_;
  std::unique_ptr<FakeAgent> a_;
  std::unique_ptr<FakeAgent> b_;
};

TEST_F(StopTest, JobThatContinuesFromItsBarrierKeepsItsIncarnation) {
  hold_at_runs();
  b_->instead = [this, gave_up = false](const wire::CommitMessage& m) mutable {
    if (gave_up || !std::holds_alternative<wire::Lease>(m.body)) return false;
    gave_up = true;
    const auto k = std::get<wire::Lease>(m.body).k;
    b_->send_commit(m, wire::Role::kTarget, wire::Role::kCoordinator, wire::Verified());
    b_->send_commit(m, wire::Role::kTarget, wire::Role::kCoordinator, wire::Committed(k));
    b_->send_commit(m, wire::Role::kTarget, wire::Role::kCoordinator, wire::Ran(k));
    b_->send_commit(
        m, wire::Role::kTarget, wire::Role::kCoordinator,
        wire::Relinquished(wire::Reason(ErrorCode::kAborted, "The instance at the target has exited")));
    return true;
  };
  start_nodes();
  run_job();
  const json first = closed(migrate());
  EXPECT_EQ(first["result"], "restored");
  EXPECT_EQ(first["exit_code"], 3);
  EXPECT_EQ(job()["node"], "node-a");
  EXPECT_EQ(job()["incarnation"], 1);
  a_->post([this] { a_->instead = nullptr; });
  const json second = closed(migrate());
  EXPECT_EQ(second["result"], "done");
  EXPECT_EQ(job()["incarnation"], 2);
}

TEST_F(StopTest, RollbackInterruptedByACoordinatorRestartIsReportedAsRestored) {
  hold_at_runs();
  std::atomic<bool> gives_up{false};
  b_->instead = [this, &gives_up](const wire::CommitMessage& m) {
    if (gives_up)
      b_->send_commit(
          m, wire::Role::kTarget, wire::Role::kCoordinator,
          wire::Relinquished(wire::Reason(ErrorCode::kAborted, "The instance at the target has exited")));
    return gives_up.load();
  };
  start_nodes();
  run_job();
  const std::string id = migrate();
  migration_when(cluster_, id, [](const json& m) { return m["runs_at"] == "node-b:0"; });
  cluster_.stop();
  gives_up = true;
  cluster_.start();
  const json m = closed(id);
  EXPECT_EQ(m["result"], "restored");
  EXPECT_EQ(m["exit_code"], 3);
  EXPECT_EQ(job()["incarnation"], 1);
}

TEST_F(StopTest, StopIsSentAgainAfterTheNodeReconnects) {
  a_->ignore_stops = true;
  start_nodes();
  run_job();
  EXPECT_EQ(cluster_.post("/v1/jobs/train/stop").status, 202U);
  a_->stop();
  cluster_.wait_for_event("node-lost");
  a_ = returning("node-a");
  told_a_.listen_at(*a_);
  a_->start();
  EXPECT_TRUE(told_a_.comes());
  EXPECT_EQ(ended_job()["exit_code"], 143);
}

TEST_F(StopTest, StopAbortsAnOpenMigrationAndEndsTheJob) {
  b_->silent_prepare = true;
  start_nodes();
  run_job();
  const std::string id = migrate();
  EXPECT_EQ(cluster_.post("/v1/jobs/train/stop").status, 202U);
  const json m = closed(id);
  EXPECT_EQ(m["result"], "interrupted");
  EXPECT_EQ(ended_job()["exit_code"], 143);
}

TEST_F(StopTest, StopBetweenBarrierAndRunsEndsTheJobAtTheTarget) {
  std::optional<wire::CommitMessage> lease;
  b_->instead = [this, &lease](const wire::CommitMessage& m) {
    if (!std::holds_alternative<wire::Lease>(m.body)) return false;
    if (lease) return true;
    lease = m;
    b_->send_commit(m, wire::Role::kTarget, wire::Role::kCoordinator, wire::Verified());
    b_->send_commit(m, wire::Role::kTarget, wire::Role::kCoordinator,
                    wire::Committed(std::get<wire::Lease>(m.body).k));
    return true;
  };
  told_a_.listen_at(*a_);
  told_b_.listen_at(*b_);
  start_nodes();
  run_job();
  const std::string id = migrate();
  migration_when(cluster_, id, [](const json& m) { return m["state"] == "committed"; });
  EXPECT_EQ(cluster_.post("/v1/jobs/train/stop").status, 202U);
  b_->post([this, &lease] {
    b_->change(1, 2, wire::JobPhase::kRunning);
    b_->send_commit(*lease, wire::Role::kTarget, wire::Role::kCoordinator, wire::Ran(2));
  });
  EXPECT_TRUE(told_b_.comes());
  EXPECT_EQ(closed(id)["runs_at"], "node-b:0");
  // The agent has answered a request that was sent after the stop.
  EXPECT_FALSE(told_a_.said()) << "the source waited at its barrier, and was told to end";
  EXPECT_EQ(ended_job()["exit_code"], 143);
}

TEST_F(StopTest, StopOnADisconnectedNodeIsKeptAndTheJobEndsOnReconnection) {
  start_nodes();
  run_job();
  a_->stop();
  cluster_.wait_for_event("node-lost");
  const auto answer = cluster_.post("/v1/jobs/train/stop");
  EXPECT_EQ(answer.status, 202U) << answer.body;
  const json stopped = answer.json();
  EXPECT_EQ(stopped["state"], "stopping");
  EXPECT_EQ(stopped["silent_node"], "node-a");
  EXPECT_EQ(stopped["exit_code"], nullptr);
  EXPECT_NE(stopped["reason"].dump().find("node node-a is unreachable, and the job may still run there"),
            std::string::npos)
      << stopped;
  const auto removed = request(cluster_.api_address(), cluster_.token(), "DELETE", "/v1/jobs/train");
  EXPECT_EQ(removed.status, 409U) << removed.body;
  EXPECT_NE(removed.body.find("--force --fenced"), std::string::npos) << removed.body;
  cluster_.stop();
  cluster_.start();  // the order survives the restart
  EXPECT_EQ(job()["state"], "stopping");
  a_ = returning("node-a");
  told_a_.listen_at(*a_);
  a_->start();
  EXPECT_TRUE(told_a_.comes());
  const json ended = ended_job();
  EXPECT_EQ(ended["state"], "exited");
  EXPECT_EQ(ended["exit_code"], 143);
  EXPECT_EQ(ended["silent_node"], nullptr);
}

TEST_F(StopTest, RanksOnADisconnectedNodeAreNotReportedAsExited) {
  start_nodes();
  const auto begun = cluster_.post(
      "/v1/jobs",
      R"({"argv":["./train"],"cwd":"/tmp","name":"ranks","ranks":2,"nodes":["node-a","node-b"],"env":{"MASTER_ADDR":"x","MASTER_PORT":"1"}})");
  ASSERT_EQ(begun.status, 201U) << begun.body;
  a_->stop();
  cluster_.wait_for_event("node-lost");
  EXPECT_EQ(cluster_.post("/v1/jobs/ranks/stop").status, 202U);
  const json gang = cluster_.get("/v1/jobs/ranks/wait?timeout_ms=1").json();
  EXPECT_EQ(gang["state"], "stopping") << gang;
  EXPECT_EQ(gang["silent_node"], "node-a") << gang;
  EXPECT_EQ(gang["exit_code"], nullptr) << gang;
}

TEST_F(StopTest, NodeWithJobsIsRemovedOnlyByForceAndItsJobsAreLost) {
  start_nodes();
  run_job();
  EXPECT_EQ(cluster_.post("/v1/nodes/node-c/remove").status, 404U);
  EXPECT_EQ(cluster_.post("/v1/nodes/node-a/remove").status, 409U);
  EXPECT_EQ(cluster_.post("/v1/nodes/node-a/remove", R"({"force":true})").status, 409U) << "it is connected";
  a_->stop();
  cluster_.wait_for_event("node-lost");
  EXPECT_EQ(cluster_.post("/v1/nodes/node-a/remove").status, 409U);
  const auto removed = cluster_.post("/v1/nodes/node-a/remove", R"({"force":true})");
  ASSERT_EQ(removed.status, 200U) << removed.body;
  EXPECT_EQ(removed.json()["lost"], json::array({"j1"}));
  EXPECT_EQ(job()["state"], "lost");
  EXPECT_EQ(cluster_.get("/v1/nodes").json().size(), 1U);
  const auto restore = cluster_.post("/v1/jobs/train/restore");
  EXPECT_NE(restore.body.find("--fenced"), std::string::npos) << restore.body;
  EXPECT_EQ(cluster_.post("/v1/nodes/node-a/remove", R"({"force":true,"fenced":true})").status, 200U);
  const auto allowed = cluster_.post("/v1/jobs/train/restore");
  EXPECT_EQ(allowed.body.find("--fenced"), std::string::npos) << allowed.body;
  run_job("node-b");  // the job's name is free
}

TEST_F(StopTest, RemovedNodeThatReturnsIsRefusedAndEndsStoppedJobs) {
  start_nodes();
  run_job();
  a_->stop();
  cluster_.wait_for_event("node-lost");
  EXPECT_EQ(cluster_.post("/v1/jobs/train/stop").status, 202U);
  EXPECT_EQ(cluster_.post("/v1/nodes/node-a/remove").status, 409U) << "it may run on there";
  EXPECT_EQ(cluster_.post("/v1/nodes/node-a/remove", R"({"force":true})").status, 200U);
  cluster_.stop();
  cluster_.start();  // the order survives the restart
  a_ = returning("node-a");
  told_a_.listen_at(*a_);
  a_->start();
  EXPECT_TRUE(told_a_.comes());
  for (const json& node : cluster_.get("/v1/nodes").json()) EXPECT_NE(node["name"], "node-a");
}

TEST_F(StopTest, NodeAddedAgainReturnsTheJobThatKeptRunning) {
  start_nodes();
  run_job();
  EXPECT_EQ(cluster_.post("/v1/nodes/node-a/add").status, 404U) << "it was not removed";
  a_->stop();
  cluster_.wait_for_event("node-lost");
  ASSERT_EQ(cluster_.post("/v1/nodes/node-a/remove", R"({"force":true})").status, 200U);
  run_job("node-b");  // the job's name is free
  a_ = returning("node-a");
  a_->start();
  const auto until = std::chrono::steady_clock::now() + kDeadline;
  const auto reason = [this] { return job("j1")["reason"].dump(); };
  while (reason().find("unmanaged") == std::string::npos && std::chrono::steady_clock::now() < until) {
  }
  EXPECT_NE(reason().find("node add node-a"), std::string::npos) << reason();
  EXPECT_EQ(job("j1")["state"], "lost");
  a_->stop();
  ASSERT_EQ(cluster_.post("/v1/nodes/node-a/add").status, 200U);
  a_ = returning("node-a");
  a_->start();
  cluster_.wait_for_event("job-taken-in");
  EXPECT_EQ(job("j1")["state"], "running");
  EXPECT_EQ(job("j1")["name"], "train-j1");
  EXPECT_EQ(job("train")["id"], "j2");
}

TEST_F(StopTest, RemovalThatTheEndOfTheCoordinatorInterruptedIsCompleted) {
  start_nodes();
  run_job();
  a_->stop();
  cluster_.wait_for_event("node-lost");
  cluster_.stop();
  change_store("INSERT INTO removed_nodes VALUES ('node-a', 0, 1)");
  cluster_.start();
  EXPECT_EQ(job()["state"], "lost");
  for (const json& node : cluster_.get("/v1/nodes").json()) EXPECT_NE(node["name"], "node-a");
  const auto restore = cluster_.post("/v1/jobs/train/restore");
  EXPECT_NE(restore.body.find("--fenced"), std::string::npos) << restore.body;
  cluster_.wait_for_event("node-removed");
}

TEST_F(StopTest, OlderInstanceOfARemovedJobIsEndedWhenItsNodeReturns) {
  start_nodes();
  run_job();
  a_->stop();
  cluster_.wait_for_event("node-lost");
  ASSERT_EQ(cluster_.post("/v1/nodes/node-a/remove", R"({"force":true,"fenced":true})").status, 200U);
  const auto removed = request(cluster_.api_address(), cluster_.token(), "DELETE", "/v1/jobs/train");
  ASSERT_EQ(removed.status, 200U) << removed.body;
  ASSERT_EQ(cluster_.post("/v1/nodes/node-a/add").status, 200U);
  cluster_.stop();
  change_store(
      // the row simulates a job that has continued from an image elsewhere
      "INSERT INTO removed_job_fences (job, fenced) VALUES (1, 1)");
  cluster_.start();
  a_ = returning("node-a");
  told_a_.listen_at(*a_);
  a_->start();
  EXPECT_TRUE(told_a_.comes());
}

TEST_F(StopTest, FenceCommandProvesThatANodeIsDeadOrReportsItsError) {
  const std::string program = cluster_.folder() + "/fence";
  const auto fences = [&](const std::string& text) {
    std::ofstream(program) << "#!/bin/sh\n" << text << "\n";
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  };
  fences("exit 3");
  cluster_.stop();
  cluster_.settings().fence_command = program;
  cluster_.start();
  start_nodes();
  run_job();
  a_->stop();
  cluster_.wait_for_event("node-lost", 1);
  const auto failed = cluster_.post("/v1/nodes/node-a/remove", R"({"force":true})");
  ASSERT_EQ(failed.status, 200U) << failed.body;
  EXPECT_EQ(failed.json()["fenced"], false);
  EXPECT_NE(failed.json()["fence_problem"].dump().find("exit status 3"), std::string::npos) << failed.body;
  EXPECT_NE(cluster_.post("/v1/jobs/train/restore").body.find("--fenced"), std::string::npos);
  fences("echo $1 > " + program + ".said");
  b_->stop();
  cluster_.wait_for_event("node-lost", 2);
  const auto fenced = cluster_.post("/v1/nodes/node-b/remove", R"({"force":true})");
  EXPECT_EQ(fenced.json()["fenced"], true) << fenced.body;
  std::string said;
  std::ifstream(program + ".said") >> said;
  EXPECT_EQ(said, "node-b");
}

TEST_F(StopTest, JobWithASilentKeeperIsUnknownAndCannotBeMoved) {
  start_nodes();
  run_job();
  a_->post([this] {
    wire::JobChange change;
    change.instance = a_->inventory.jobs.at(0);
    change.instance.unknown = true;
    change.instance.movable = false;
    change.instance.reason = "its keeper does not answer";
    a_->send(change);
  });
  const auto until = std::chrono::steady_clock::now() + kDeadline;
  while (job()["state"] != "unknown" && std::chrono::steady_clock::now() < until) {
  }
  EXPECT_EQ(job()["state"], "unknown");
  const auto refused = cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b"})");
  EXPECT_EQ(refused.status, 409U) << refused.body;
  EXPECT_NE(refused.body.find("does not answer"), std::string::npos);
}

}  // namespace
}  // namespace ckpt::coordinator::test
