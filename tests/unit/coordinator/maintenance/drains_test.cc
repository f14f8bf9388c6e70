// SPDX-License-Identifier: Apache-2.0
// Tests of cordons and drains over the API. The nodes speak the control messages and do nothing.
#include "tests/unit/coordinator/support/nodes_fixture.h"

namespace ckpt::coordinator::test {
namespace {

using nlohmann::json;

class DrainsTest : public NodesTest {
 protected:
  void two_nodes(unsigned jobs) {
    node("node-a");
    node("node-b");
    start();
    for (unsigned i = 0; i < jobs; ++i)
      run_job("job-" + std::string(1, static_cast<char>('a' + i)), "node-a");
  }
  static unsigned count(const json& drain, const std::string& state) {
    unsigned found = 0;
    for (const json& entry : drain["jobs"]) found += entry["state"] == state ? 1 : 0;
    return found;
  }
};

TEST_F(DrainsTest, CordonsAreShownAndEnforced) {
  two_nodes(1);
  const auto cordon = cluster_.post("/v1/cordon", R"({"place":"node-b","reason":"new driver"})");
  ASSERT_EQ(cordon.status, 200U) << cordon.body;
  EXPECT_EQ(cordon.json()["owner"], "operator");
  EXPECT_EQ(cluster_.get("/v1/nodes").json()[1]["cordons"][0]["reason"], "new driver");
  EXPECT_EQ(cluster_.get("/v1/nodes").json()[0]["cordons"], nullptr);
  EXPECT_EQ(cluster_.get("/v1/gpus").json()[1]["cordons"][0]["place"], "node-b");
  restart();
  const auto refused = cluster_.post("/v1/jobs", R"({"argv":["x"],"cwd":"/tmp","node":"node-b"})");
  EXPECT_EQ(refused.status, 409U);
  EXPECT_NE(refused.body.find("cordoned by operator: new driver"), std::string::npos) << refused.body;
  const auto move = cluster_.post("/v1/jobs/job-a/migrate", R"({"to":"node-b","timeout_ms":1})");
  EXPECT_EQ(move.status, 409U);
  EXPECT_NE(move.body.find("cordoned by operator"), std::string::npos) << move.body;
  const json cleared = cluster_.post("/v1/uncordon", R"({"place":"node-b"})").json();
  EXPECT_EQ(cleared["cleared"][0]["owner"], "operator");
  EXPECT_TRUE(cleared["left"].empty());
  EXPECT_TRUE(cluster_.post("/v1/uncordon", R"({"place":"node-b"})").json()["cleared"].empty());
  EXPECT_EQ(cluster_.post("/v1/jobs/job-a/migrate", R"({"to":"node-b"})").status, 202U);
}

TEST_F(DrainsTest, AnyGpuOfADisconnectedNodeCanBeCordoned) {
  two_nodes(0);
  cluster_.stop();
  node("node-b").stop();
  cluster_.start();  // the coordinator knows node-b by name; only its agent would report the GPUs
  EXPECT_EQ(cluster_.post("/v1/cordon", R"({"place":"node-b:5"})").status, 200U);
}

TEST_F(DrainsTest, UnknownPlacesAndDrainsAreRefused) {
  two_nodes(0);
  EXPECT_EQ(cluster_.post("/v1/cordon", R"({"place":"node-z"})").status, 404U);
  EXPECT_EQ(cluster_.post("/v1/cordon", R"({"place":"node-a:7"})").status, 404U);
  EXPECT_EQ(cluster_.post("/v1/cordon", R"({"place":"node-a:x"})").status, 400U);
  EXPECT_EQ(cluster_.post("/v1/cordon", "{}").status, 400U);
  EXPECT_EQ(cluster_.post("/v1/drains", R"({"place":"node-z"})").status, 404U);
  EXPECT_EQ(cluster_.post("/v1/drains", R"({"place":"node-a","parallel":0})").status, 400U);
  EXPECT_EQ(cluster_.get("/v1/drains/d1").status, 404U);
  EXPECT_TRUE(cluster_.get("/v1/cordons").json().empty());
  EXPECT_TRUE(cluster_.get("/v1/drains").json().empty());
}

TEST_F(DrainsTest, DrainMovesAllJobsOffANodeAndASecondDrainMovesNoJob) {
  two_nodes(5);
  const json begun = drain(R"({"place":"node-a","reason":"maintenance"})");
  const json done = finished_drain(begun["id"]);
  EXPECT_EQ(done["result"], "empty") << done;
  EXPECT_EQ(done["exit_code"], 0);
  EXPECT_EQ(count(done, "moved"), 5U) << done;
  for (const json& entry : done["jobs"]) {
    EXPECT_EQ(entry["to"], "node-b:0");
    EXPECT_EQ(entry["downtime_ms"], 8.0);
  }
  for (const json& migration : cluster_.get("/v1/migrations").json())
    EXPECT_EQ(migration["reason"], "[gpumigrate] drain d1: maintenance");
  EXPECT_EQ(cluster_.get("/v1/cordons").json()[0]["reason"], "maintenance");
  const json again = drain(R"({"place":"node-a"})");
  EXPECT_FALSE(again["open"].get<bool>());
  EXPECT_EQ(again["exit_code"], 0);
  EXPECT_TRUE(again["jobs"].empty());
  EXPECT_EQ(cluster_.get("/v1/cordons").json()[0]["reason"], "maintenance");
  EXPECT_EQ(cluster_.get("/v1/migrations").json().size(), 5U);
}

TEST_F(DrainsTest, DrainMovesAtMostTheConfiguredNumberOfJobsAtATime) {
  node("node-a").silent_prepare = true;
  two_nodes(4);
  const json begun = drain(R"({"place":"node-a","parallel":3})");
  EXPECT_EQ(count(begun, "moving"), 3U) << begun;
  EXPECT_EQ(job_of(begun, "job-d")["reason"], "waits for its turn");
  EXPECT_EQ(cluster_.get("/v1/migrations").json().size(), 3U);
  const json joined = drain(R"({"place":"node-a","parallel":4})");
  EXPECT_EQ(joined["id"], begun["id"]);
  EXPECT_TRUE(joined["joined"].get<bool>());
  EXPECT_EQ(joined["parallel"], 3);
  // An aborted move leaves its job on the node, and frees its slot for the next job.
  EXPECT_EQ(cluster_.post("/v1/migrations/m1/abort").status, 202U);
  const json later =
      wait_for_drain(begun["id"], [](const json& d) { return job_of(d, "job-d")["state"] == "moving"; });
  EXPECT_EQ(job_of(later, "job-a")["state"], "left") << later;
}

TEST_F(DrainsTest, ADryRunChangesNothing) {
  two_nodes(2);
  const auto answer = cluster_.post("/v1/drains", R"({"place":"node-a","dry_run":true})");
  ASSERT_EQ(answer.status, 200U) << answer.body;
  const json plan = answer.json();
  EXPECT_TRUE(plan["possible"].get<bool>());
  EXPECT_EQ(plan["jobs"][0]["to"], "node-b:0");
  EXPECT_TRUE(cluster_.get("/v1/cordons").json().empty());
  EXPECT_TRUE(cluster_.get("/v1/drains").json().empty());
  EXPECT_TRUE(cluster_.get("/v1/migrations").json().empty());
}

TEST_F(DrainsTest, UnmovableJobsAreReportedAndTheOtherJobsMove) {
  node("node-b").inventory.gpus[0].total_bytes = node("node-b").inventory.gpus[0].free_bytes =
      std::uint64_t{100} << 20;
  two_nodes(2);
  const auto big = cluster_.post(
      "/v1/jobs",
      R"({"argv":["x"],"cwd":"/tmp","node":"node-a","name":"big","gpu_memory_bytes":1073741824})");
  ASSERT_EQ(big.status, 201U) << big.body;
  const json plan = cluster_.post("/v1/drains", R"({"place":"node-a","dry_run":true})").json();
  EXPECT_FALSE(plan["possible"].get<bool>());
  const json done = finished_drain(drain(R"({"place":"node-a"})")["id"]);
  EXPECT_EQ(done["result"], "incomplete");
  EXPECT_EQ(done["exit_code"], 1);
  EXPECT_EQ(count(done, "moved"), 2U);
  const json stuck = job_of(done, "big");
  EXPECT_EQ(stuck["state"], "blocked");
  EXPECT_EQ(stuck["reason"], "no GPU: 1 being drained, 1 too small");
  ASSERT_EQ(stuck["obstacles"].size(), 2U) << stuck;
  EXPECT_TRUE(stuck["obstacles"][0].get<std::string>().starts_with("node-a:0: ")) << stuck;
  EXPECT_NE(stuck["obstacles"][1].get<std::string>().find("too small: "), std::string::npos) << stuck;
  EXPECT_TRUE(job_of(done, "job-a")["obstacles"].empty()) << done;
  EXPECT_EQ(job("big")["node"], "node-a");
}

TEST_F(DrainsTest, DrainWaitsForFreeMemoryAndContinues) {
  node("node-b").inventory.gpus[0].free_bytes = 0;
  two_nodes(1);
  const json begun = drain(R"({"place":"node-a"})");
  EXPECT_TRUE(begun["open"].get<bool>());
  EXPECT_EQ(job_of(begun, "job-a")["state"], "waiting") << begun;
  EXPECT_EQ(job_of(begun, "job-a")["reason"], "no GPU: 1 being drained, 1 full");
  node("node-b").set_free(std::uint64_t{8} << 30);
  EXPECT_EQ(finished_drain(begun["id"])["result"], "empty");
}

TEST_F(DrainsTest, DrainEndsAtItsDeadline) {
  node("node-b").inventory.gpus[0].free_bytes = 0;
  two_nodes(1);
  const json done = finished_drain(drain(R"({"place":"node-a","deadline_ms":200})")["id"]);
  EXPECT_EQ(done["result"], "deadline");
  EXPECT_EQ(done["exit_code"], 2);
  EXPECT_EQ(job_of(done, "job-a")["state"], "waiting");
  EXPECT_EQ(job("job-a")["node"], "node-a");
}

TEST_F(DrainsTest, ADryRunQueriesTheNodes) {
  node("node-a").refuse_leaving = true;
  two_nodes(1);
  const json plan = cluster_.post("/v1/drains", R"({"place":"node-a","dry_run":true})").json();
  EXPECT_FALSE(plan["possible"].get<bool>()) << plan;
  EXPECT_EQ(plan["jobs"][0]["to"], nullptr);
  EXPECT_NE(plan["jobs"][0]["reason"].get<std::string>().find("Descriptor 3 is a pipe"), std::string::npos)
      << plan;
}

TEST_F(DrainsTest, ADryRunQueriesAllTargetsConcurrentlyAndChoosesTheBestAcceptingTarget) {
  for (const char* name : {"node-a", "node-b", "node-c"}) node(name).inventory.moves_processes = true;
  node("node-b").refuse_arrivals = true;
  start();
  constexpr const char* kJob =
      R"({"argv":["x"],"cwd":"/tmp","node":"node-a","name":"job-a","mode":"transparent"})";
  ASSERT_EQ(cluster_.post("/v1/jobs", kJob).status, 201U);
  const auto dry_run = [this] {
    return cluster_.post("/v1/drains", R"({"place":"node-a","dry_run":true})").json();
  };
  const json plan = dry_run();
  EXPECT_EQ(plan["jobs"][0]["to"], "node-c:0") << plan;
  EXPECT_EQ(node("node-b").arrivals_asked, 1U);
  EXPECT_EQ(node("node-c").arrivals_asked, 1U);
  node("node-c").post([this] { node("node-c").refuse_arrivals = true; });
  const json refused = dry_run();
  EXPECT_FALSE(refused["possible"].get<bool>()) << refused;
  EXPECT_EQ(refused["jobs"][0]["reason"], "/root/gpu.log does not exist at the target") << refused;
}

TEST_F(DrainsTest, AJobWithReportedObstaclesIsBlockedWithoutAMove) {
  node("node-a").refuse_leaving = true;
  two_nodes(1);
  node("node-a").post([this] {
    wire::JobChange change;
    change.instance = node("node-a").inventory.jobs.at(0);
    change.instance.obstacles = 1;
    node("node-a").send(change);
  });
  while (job("job-a")["obstacles"] != 1) {
  }
  const json done = finished_drain(drain(R"({"place":"node-a"})")["id"]);
  EXPECT_EQ(done["exit_code"], 1);
  EXPECT_EQ(job_of(done, "job-a")["state"], "blocked") << done;
  EXPECT_EQ(job_of(done, "job-a")["attempts"], 0) << done;
  EXPECT_NE(job_of(done, "job-a")["reason"].get<std::string>().find("Descriptor 3 is a pipe"),
            std::string::npos)
      << done;
  EXPECT_TRUE(cluster_.get("/v1/migrations").json().empty());
}

TEST_F(DrainsTest, ARefusedJobIsTriedOnTheOtherTargetsAndThenBlocked) {
  node("node-b").refuse_prepare = true;
  node("node-c").refuse_prepare = true;
  two_nodes(1);
  const json done = finished_drain(drain(R"({"place":"node-a"})")["id"]);
  EXPECT_EQ(done["exit_code"], 1);
  EXPECT_EQ(job_of(done, "job-a")["state"], "blocked") << done;
  EXPECT_NE(job_of(done, "job-a")["reason"].get<std::string>().find("shapes differ"), std::string::npos)
      << done;
  EXPECT_EQ(cluster_.get("/v1/migrations").json().size(), 2U);
}

TEST_F(DrainsTest, AJobIsBlockedAfterThreeFailedAttempts) {
  node("node-b").relinquishes = wire::Reason(ErrorCode::kIo, "the disk is full");
  two_nodes(1);
  const json begun = drain(R"({"place":"node-a"})");
  for (std::uint64_t attempt = 1; attempt <= 2; ++attempt) {
    wait_for_drain(begun["id"], [&](const json& d) {
      return job_of(d, "job-a")["attempts"] == attempt && job_of(d, "job-a")["state"] == "waiting";
    });
    node("node-b").set_free(std::uint64_t{8} << 30);  // the drain waits for an inventory
  }
  const json done = finished_drain(begun["id"]);
  EXPECT_EQ(done["exit_code"], 1);
  EXPECT_EQ(job_of(done, "job-a")["state"], "failed");
  EXPECT_NE(job_of(done, "job-a")["reason"].get<std::string>().find("the disk is full"), std::string::npos)
      << done;
  EXPECT_EQ(cluster_.get("/v1/migrations").json().size(), 3U);
}

TEST_F(DrainsTest, DrainContinuesAfterARestart) {
  node("node-b").inventory.gpus[0].free_bytes = 0;
  two_nodes(3);
  const json begun = drain(R"({"place":"node-a","reason":"before"})");
  restart();
  const json known = cluster_.get("/v1/drains/" + begun["id"].get<std::string>()).json();
  EXPECT_TRUE(known["open"].get<bool>()) << known;
  EXPECT_EQ(known["deadline"], begun["deadline"]);
  EXPECT_TRUE(drain(R"({"place":"node-a"})")["joined"].get<bool>());
  node("node-b").set_free(std::uint64_t{8} << 30);
  const json done = finished_drain(begun["id"]);
  EXPECT_EQ(done["exit_code"], 0) << done;
  EXPECT_EQ(count(done, "moved"), 3U);
}

TEST_F(DrainsTest, UncordonEndsTheDrain) {
  node("node-b").inventory.gpus[0].free_bytes = 0;
  two_nodes(1);
  const json begun = drain(R"({"place":"node-a"})");
  EXPECT_EQ(cluster_.post("/v1/uncordon", R"({"place":"node-a"})").status, 200U);
  const json done = finished_drain(begun["id"]);
  EXPECT_EQ(done["result"], "cancelled");
  EXPECT_EQ(done["exit_code"], 2);
  EXPECT_EQ(cluster_.post("/v1/drains/d1/cancel").status, 409U);
}

TEST_F(DrainsTest, AJobThatExitsIsReportedAsExited) {
  node("node-b").inventory.gpus[0].free_bytes = 0;
  two_nodes(1);
  const json begun = drain(R"({"place":"node-a"})");
  node("node-a").end_job(1, 0);
  const json done = finished_drain(begun["id"]);
  EXPECT_EQ(done["exit_code"], 0);
  EXPECT_EQ(job_of(done, "job-a")["state"], "ended");
}

TEST_F(DrainsTest, DrainFallsBackToImages) {
  images_.jobs = {1};
  images_.held = true;
  cluster_.use_images(&images_);
  node("node-b").inventory.gpus[0].total_bytes = node("node-b").inventory.gpus[0].free_bytes = 1024;
  two_nodes(1);
  const json begun = drain(R"({"place":"node-a","fallback":"restore"})");
  images_.wait_for_calls(1);
  EXPECT_EQ(job_of(cluster_.get("/v1/drains/d1").json(), "job-a")["state"], "restoring");
  node("node-a").end_job(1, 0);  // the job's old instance, which the restore ends
  EXPECT_EQ(cluster_.get("/v1/jobs/j1/wait").json()["state"], "exited");
  images_.release();
  const json done = finished_drain(begun["id"]);
  EXPECT_EQ(job_of(done, "job-a")["state"], "restored") << done;
  EXPECT_NE(job_of(done, "job-a")["reason"].get<std::string>().find("12.3 s"), std::string::npos);
  EXPECT_EQ(done["exit_code"], 3);
  EXPECT_EQ(images_.calls().at(0).reason, "[gpumigrate] drain d1");
}

}  // namespace
}  // namespace ckpt::coordinator::test
