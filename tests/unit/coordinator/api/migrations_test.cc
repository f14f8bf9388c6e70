// SPDX-License-Identifier: Apache-2.0
// Tests of migrations over the API: their requests, their reports, and how they end.
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

#include "libckpt/protocol/wire/control_messages.h"
#include "tests/unit/coordinator/api/api_fixture.h"

namespace ckpt::coordinator::test {
namespace {

TEST_F(ApiTest, MovesAJob) {
  two_nodes();
  a_->log = "before\n";
  b_->log = "after\n";
  start_nodes();
  run_job();
  const auto begun = cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b","reason":"test"})");
  ASSERT_EQ(begun.status, 202U) << begun.body;
  const json m = finished(begun.json()["id"]);
  EXPECT_EQ(m["result"], "done") << m;
  EXPECT_EQ(m["exit_code"], 0);
  EXPECT_EQ(m["runs_at"], "node-b:0");
  const json& report = m["report"];
  EXPECT_DOUBLE_EQ(report["downtime_ms"], 8);
  double sum = 0;
  for (const auto& [piece, ms] : report["downtime_breakdown_ms"].items()) sum += ms.get<double>();
  EXPECT_DOUBLE_EQ(sum, report["downtime_ms"]);
  EXPECT_EQ(report["dirty_bytes"], 1 << 19);
  EXPECT_EQ(report["copy_ms"], 0.0);  // nothing to copy is a known value, not unknown
  EXPECT_EQ(report["estimate_ms"], nullptr);
  EXPECT_EQ(report["verified"], true);
  EXPECT_EQ(report["incarnation"], 2);
  const json job = cluster_.get("/v1/jobs/train").json();
  EXPECT_EQ(job["node"], "node-b");
  EXPECT_EQ(job["incarnation"], 2);
  EXPECT_DOUBLE_EQ(job["last_downtime_ms"], 8);
  EXPECT_EQ(job["state_bytes"], 1 << 20);
  EXPECT_TRUE(job["movable"].get<bool>());
  EXPECT_EQ(job["exit_code"], nullptr);
  EXPECT_EQ(cluster_.get("/v1/jobs/train/logs").body, "before\n");
  EXPECT_EQ(cluster_.get("/v1/jobs/train/logs?offset=7").body, "after\n");
  expect_error(cluster_.post("/v1/migrations/" + m["id"].get<std::string>() + "/abort"), 409, "refused", 5);
}

TEST_F(ApiTest, AFailedMigrationEndsOnceItsJobRunsAgain) {
  two_nodes();
  a_->pauses = true;
  b_->relinquishes = wire::Reason(ErrorCode::kIo, "the disk is full");
  start_nodes();
  run_job();
  const std::string id = cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b"})").json()["id"];
  a_->wait_for_closed();
  const json decided = cluster_.get("/v1/migrations/" + id).json();
  EXPECT_TRUE(decided["open"].get<bool>()) << decided;
  EXPECT_EQ(cluster_.get("/v1/jobs/train").json()["state"], "paused");
  a_->run_jobs();
  const json m = finished(id);
  EXPECT_EQ(m["result"], "failed") << m;
  EXPECT_EQ(m["error"], "the disk is full") << m;
  EXPECT_EQ(m["report"]["error"], "the disk is full") << m;
  EXPECT_EQ(cluster_.get("/v1/jobs/train").json()["state"], "running");
}

TEST_F(ApiTest, MigrationEndsIfItsSourceExitsBeforeTheJobRunsAgain) {
  two_nodes();
  a_->pauses = true;
  b_->relinquishes = wire::Reason(ErrorCode::kIo, "the disk is full");
  start_nodes();
  run_job();
  const std::string id = cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b"})").json()["id"];
  a_->wait_for_closed();
  a_->stop();
  EXPECT_EQ(finished(id)["result"], "failed");
}

TEST_F(ApiTest, MigrationAbortedByItsSourceReportsTheReason) {
  two_nodes();
  a_->leaves = wire::Reason(ErrorCode::kAborted, "the job's process has ended");
  start_nodes();
  run_job();
  const std::string id = cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b"})").json()["id"];
  const json m = finished(id);
  EXPECT_EQ(m["result"], "failed") << m;
  EXPECT_EQ(m["error"], "the job's process has ended") << m;
}

TEST_F(ApiTest, DryRunChangesNothing) {
  two_nodes();
  b_->inventory.gpus[0].free_bytes = 1024;
  start_nodes();
  run_job();
  const auto plan = cluster_.post("/v1/jobs/train/migrate", R"({"dry_run":true})").json();
  EXPECT_FALSE(plan["possible"].get<bool>());
  EXPECT_EQ(plan["to"], nullptr);
  EXPECT_EQ(plan["candidates"].size(), 2U);
  EXPECT_NE(plan["reason"].get<std::string>().find("node-b:0: 1.00 KiB free"), std::string::npos) << plan;
  EXPECT_TRUE(cluster_.get("/v1/migrations").json().empty());
}

TEST_F(ApiTest, ObstaclesAreReportedSeparatelyWithinAndBetweenNodes) {
  two_nodes();
  a_->refuse_leaving = true;
  start_nodes();
  run_job();
  const json found = cluster_.get("/v1/jobs/train/obstacles").json();
  EXPECT_EQ(found["at"], "node-a:0");
  EXPECT_EQ(found["within_node"], json::parse(R"({"possible":true,"reason":null})"));
  EXPECT_EQ(found["between_nodes"],
            json::parse(R"({"possible":false,"reason":"Descriptor 3 is a pipe","targets":[]})"));
  EXPECT_EQ(cluster_.get("/v1/jobs/nobody/obstacles").status, 404U);
  ASSERT_EQ(cluster_.post("/v1/jobs/train/stop").status, 202U);
  cluster_.get("/v1/jobs/train/wait?timeout_ms=60000");
  const HttpAnswer ended = cluster_.get("/v1/jobs/train/obstacles");
  EXPECT_EQ(ended.status, 409U);
  EXPECT_NE(ended.body.find("train is exited"), std::string::npos) << ended.body;
}

// Tests with a program that moves to the other node with its files.
class LooksTest : public ApiTest {
 protected:
  void start_with_program() {
    a_->inventory.moves_processes = b_->inventory.moves_processes = true;
    start_nodes();
    constexpr const char* kJob =
        R"({"argv":["./train"],"cwd":"/tmp","node":"node-a","name":"train","mode":"transparent"})";
    ASSERT_EQ(cluster_.post("/v1/jobs", kJob).status, 201U);
  }
  json dry_run() {
    return cluster_.post("/v1/jobs/train/migrate", R"({"dry_run":true,"to":"node-b"})").json();
  }
};

TEST_F(LooksTest, EveryDryRunOfAMoveQueriesItsTarget) {
  constexpr const char* kMissing = "/root/gpu.log does not exist at the target";
  two_nodes();
  b_->refuse_arrivals = true;
  start_with_program();
  const json plan = dry_run();
  EXPECT_FALSE(plan["possible"].get<bool>()) << plan;
  EXPECT_EQ(plan["reason"], std::string("Job train cannot be moved: ") + kMissing) << plan;
  const json drain = cluster_.post("/v1/drains", R"({"place":"node-a","dry_run":true})").json();
  EXPECT_FALSE(drain["possible"].get<bool>()) << drain;
  EXPECT_EQ(drain["jobs"][0]["reason"], kMissing) << drain;
  const json found = cluster_.get("/v1/jobs/train/obstacles").json();
  EXPECT_TRUE(found["within_node"]["possible"].get<bool>()) << found;
  const json target = {{"node", "node-b"}, {"possible", false}, {"reason", kMissing}};
  EXPECT_EQ(found["between_nodes"],
            (json{{"possible", false}, {"reason", kMissing}, {"targets", json::array({target})}}));
}

TEST_F(LooksTest, OlderTargetRefusesAMoveThatResetsConnections) {
  two_nodes();
  start_with_program();
  const json plan =
      cluster_.post("/v1/jobs/train/migrate", R"({"dry_run":true,"to":"node-b","connections":"reset"})")
          .json();
  EXPECT_FALSE(plan["possible"].get<bool>()) << plan;
  EXPECT_NE(plan["reason"].get<std::string>().find("under the older agent of node-b: update it"),
            std::string::npos)
      << plan;
  EXPECT_TRUE(dry_run()["possible"].get<bool>());
}

TEST_F(LooksTest, ConnectionsSettingOfTheMoveOverridesTheSettingOfTheJob) {
  two_nodes();
  a_->open_connections = 3;
  b_->inventory.resets_connections = true;
  start_with_program();
  const auto plan_of = [this](const char* body) {
    return cluster_.post("/v1/jobs/train/migrate", body).json();
  };
  const json refused = dry_run();
  EXPECT_FALSE(refused["possible"].get<bool>()) << refused;
  EXPECT_EQ(refused["options"]["connections"], "refuse") << refused;
  const json plan = plan_of(R"({"dry_run":true,"to":"node-b","connections":"reset"})");
  EXPECT_EQ(plan["to"], "node-b:0") << plan;
  EXPECT_EQ(plan["options"]["connections"], "reset") << plan;
  EXPECT_EQ(plan["warnings"], json::array({"3 TCP connections to other programs would end at the switch "
                                           "(connections reset)"}));
  constexpr const char* kJob =
      R"({"argv":["./x"],"cwd":"/tmp","node":"node-a","name":"x","mode":"transparent","connections":"reset"})";
  ASSERT_EQ(cluster_.post("/v1/jobs", kJob).status, 201U);
  EXPECT_EQ(cluster_.get("/v1/jobs/x").json()["connections"], "reset");
  EXPECT_EQ(cluster_.get("/v1/jobs/train").json()["connections"], "refuse");
  const auto plan_of_x = [this](const char* body) {
    return cluster_.post("/v1/jobs/x/migrate", body).json();
  };
  EXPECT_EQ(plan_of_x(R"({"dry_run":true,"to":"node-b"})")["to"], "node-b:0");
  const json own = plan_of_x(R"({"dry_run":true,"to":"node-b","connections":"refuse"})");
  EXPECT_FALSE(own["possible"].get<bool>()) << own;
}

TEST_F(LooksTest, JobWithItsOwnNamespacesStartsOnlyOnANodeThatGivesThem) {
  two_nodes();
  b_->inventory.gives_namespaces = true;
  start_with_program();
  const auto start = [this](const char* node) {
    return cluster_.post("/v1/jobs",
                         std::string(R"({"argv":["./x"],"cwd":"/tmp","name":"x","mode":"transparent",)") +
                             R"("namespaces":"own","private_tmp":true,"node":")" + node + "\"}");
  };
  const auto refused = start("node-a");
  EXPECT_EQ(refused.status, 409U);
  EXPECT_THAT(refused.body, ::testing::HasSubstr("older agent gives a job no namespaces of its own"));
  ASSERT_EQ(start("node-b").status, 201U);
  const json job = cluster_.get("/v1/jobs/x").json();
  EXPECT_EQ(job["namespaces"], "own");
  EXPECT_EQ(job["private_tmp"], true);
  EXPECT_EQ(cluster_.get("/v1/jobs/train").json()["namespaces"], "none");
}

TEST_F(LooksTest, AMoveAcceptedByItsTargetIsPossible) {
  two_nodes();
  start_with_program();
  EXPECT_EQ(dry_run()["to"], "node-b:0");
  EXPECT_TRUE(cluster_.get("/v1/jobs/train/obstacles").json()["between_nodes"]["possible"].get<bool>());
  EXPECT_EQ(b_->arrivals_asked, 2U);
}

TEST_F(LooksTest, ATargetThatDoesNotAnswerIsReportedAsNotQueried) {
  two_nodes();
  b_->silent_arrivals = true;
  start_with_program();
  auto looking = std::async(std::launch::async, [this] { return dry_run(); });
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (b_->arrivals_asked == 0 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  b_->stop();
  const json plan = looking.get();
  EXPECT_FALSE(plan["possible"].get<bool>()) << plan;
  EXPECT_NE(plan["reason"].get<std::string>().find(
                "moved: node-b could not be asked whether the move is possible: Node node-b disconnected"),
            std::string::npos)
      << plan;
}

TEST_F(LooksTest, TargetsOfACooperativeJobAreNotQueried) {
  two_nodes();
  b_->refuse_arrivals = true;
  start_nodes();
  run_job();
  EXPECT_TRUE(dry_run()["possible"].get<bool>());
  EXPECT_EQ(b_->arrivals_asked, 0U);
}

TEST_F(ApiTest, AJobThatNeverMovedShowsTheEstimateOfItsNode) {
  two_nodes();
  a_->pause_within_node_ns = 7'000'000;
  a_->pause_between_nodes_ns = 9'500'000;
  start_nodes();
  run_job();
  json job = cluster_.get("/v1/jobs/train").json();
  EXPECT_EQ(job["expected_pause_ms"]["within_node"], 7.0) << job;
  EXPECT_EQ(job["expected_pause_ms"]["between_nodes"], 9.5) << job;
  EXPECT_EQ(job["expected_pause_from"]["between_nodes"], "estimate") << job;
  const json plan = cluster_.post("/v1/jobs/train/migrate", R"({"dry_run":true,"to":"node-b"})").json();
  EXPECT_EQ(plan["expected_pause_ms"], 9.5) << plan;
  EXPECT_EQ(plan["expected_pause_from"], "estimate") << plan;
  const json drain = cluster_.post("/v1/drains", R"({"place":"node-a","dry_run":true})").json();
  EXPECT_EQ(drain["jobs"][0]["expected_pause_ms"], 9.5) << drain;
  EXPECT_EQ(drain["jobs"][0]["expected_pause_from"], "estimate") << drain;
}

TEST_F(ApiTest, AnExplicitPauseLimitIsEnforced) {
  two_nodes();
  a_->leaves = wire::Reason(ErrorCode::kRefused, "The limit cannot be met: a pause of 2.7 s is expected");
  a_->pause_between_nodes_ns = 2'700'000'000;
  start_nodes();
  run_job();
  const auto begin = [this](const std::string& body) {
    return cluster_.post("/v1/jobs/train/migrate", body).json();
  };
  const json plan = begin(R"({"to":"node-b","max_downtime_ms":100,"dry_run":true})");
  EXPECT_EQ(plan["options"]["if_not_converged"], "abort");
  ASSERT_EQ(plan["warnings"].size(), 1U) << plan;
  EXPECT_NE(plan["warnings"][0].get<std::string>().find("about 2700 ms is expected, but the limit is 100 ms"),
            std::string::npos)
      << plan;
  EXPECT_TRUE(begin(R"({"to":"node-b","dry_run":true})")["warnings"].empty());
  const json chosen =
      begin(R"({"to":"node-b","max_downtime_ms":100,"if_not_converged":"switch","dry_run":true})");
  EXPECT_EQ(chosen["options"]["if_not_converged"], "switch");
  const json refused = finished(begin(R"({"to":"node-b","max_downtime_ms":100})")["id"]);
  EXPECT_EQ(refused["result"], "refused") << refused;
  EXPECT_EQ(refused["exit_code"], 5) << refused;
  EXPECT_EQ(refused["expected_pause_ms"], 2700.0) << refused;
}

TEST_F(ApiTest, AnAgentWithoutAPauseEstimateShowsNoEstimate) {
  two_nodes();
  start_nodes();
  run_job();
  const json job = cluster_.get("/v1/jobs/train").json();
  EXPECT_EQ(job["expected_pause_ms"]["between_nodes"], nullptr) << job;
  EXPECT_EQ(job["expected_pause_from"]["between_nodes"], nullptr) << job;
}

TEST_F(ApiTest, CopyOptionsReachTheSourceAndAreShown) {
  two_nodes();
  a_->silent_prepare = true;
  start_nodes();
  run_job();
  constexpr const char* kOptions =
      R"("codec":"planes","shadow_memory_bytes":1073741824,"slowdown_percent":2.5)";
  const auto check = [](const json& options) {
    EXPECT_EQ(options["codec"], "planes") << options;
    EXPECT_EQ(options["shadow_memory_bytes"], 1 << 30) << options;
    EXPECT_EQ(options["slowdown_percent"], 2.5) << options;
    EXPECT_EQ(options["max_downtime_ms"], 200.0) << options;
    EXPECT_EQ(options["if_not_converged"], "switch") << options;
  };
  const std::string body = std::string("{") + kOptions;
  check(cluster_.post("/v1/jobs/train/migrate", body + R"(,"dry_run":true})").json()["options"]);
  const json begun = cluster_.post("/v1/jobs/train/migrate", body + R"(,"to":"node-b"})").json();
  check(begun["options"]);
  check(cluster_.get("/v1/migrations").json().at(0)["options"]);
  const json open = cluster_.get("/v1/jobs/train").json()["open_migration"];
  EXPECT_EQ(open["id"], begun["id"]);
  check(open["options"]);
  const wire::MigrateOptions sent = a_->wait_for_plan().options;
  EXPECT_EQ(sent.codec, wire::CodecMode::kPlanes);
  EXPECT_EQ(sent.shadow_memory_bytes, 1U << 30);
  EXPECT_EQ(sent.slowdown_permille, 25U);
  cluster_.post("/v1/migrations/" + begun["id"].get<std::string>() + "/abort");
}

TEST_F(ApiTest, RefusesInvalidCopyOptions) {
  two_nodes();
  start_nodes();
  run_job();
  for (const char* body :
       {R"({"codec":"zip"})", R"({"codec":1})", R"({"codec":"difference"})", R"({"shadow_memory_bytes":-1})",
        R"({"shadow_memory_bytes":1099511627777})", R"({"shadow_memory_bytes":"1GiB"})",
        R"({"slowdown_percent":101})", R"({"slowdown_percent":-1})", R"({"slowdown_percent":0.01})",
        R"({"slowdown_percent":"3%"})"})
    expect_error(cluster_.post("/v1/jobs/train/migrate", body), 400, "usage", 64);
  EXPECT_TRUE(cluster_.get("/v1/migrations").json().empty());
  EXPECT_EQ(cluster_.get("/v1/jobs/train").json()["open_migration"], nullptr);
}

TEST_F(ApiTest, RefusesImpossibleMoves) {
  two_nodes();
  b_->inventory.gpus[0].free_bytes = 1024;
  b_->silent_prepare = true;
  start_nodes();
  run_job();
  const auto migrate = [&](const char* body) { return cluster_.post("/v1/jobs/train/migrate", body); };
  expect_error(migrate(R"({"to":"node-z"})"), 404, "not_found", 5);
  expect_error(migrate(R"({"to":"node-b:9"})"), 404, "not_found", 5);
  expect_error(migrate(R"({"to":"node-b:x"})"), 400, "usage", 64);
  expect_error(migrate(R"({"to":"node-b"})"), 409, "refused", 5);
  expect_error(migrate(R"({"to":"node-a"})"), 409, "refused", 5);
  expect_error(migrate(R"({"strategy":"magic"})"), 400, "usage", 64);
  expect_error(migrate(R"({"communicators":"never"})"), 400, "usage", 64);
  expect_error(migrate(R"({"connections":"keep"})"), 400, "usage", 64);
  expect_error(migrate(R"({"communicators":"in-pause"})"), 400, "usage", 64);  // a job of one rank
  expect_error(cluster_.post("/v1/jobs/none/migrate"), 404, "not_found", 5);
  EXPECT_TRUE(cluster_.get("/v1/migrations").json().empty());
  EXPECT_EQ(cluster_.get("/v1/jobs/train").json()["state"], "running");
}

TEST_F(ApiTest, AMoveWaitsForAStartingJob) {
  two_nodes();
  a_->slow_start = true;
  start_nodes();
  run_job();
  expect_error(cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b","timeout_ms":1})"), 409, "refused",
               5);
  auto begun = std::async(std::launch::async,
                          [&] { return cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b"})"); });
  EXPECT_EQ(cluster_.get("/v1/jobs/train").json()["state"], "starting");
  a_->run_jobs();
  const auto answer = begun.get();
  ASSERT_EQ(answer.status, 202U) << answer.body;
  EXPECT_EQ(finished(answer.json()["id"])["result"], "done");
}

TEST_F(ApiTest, AMoveWaitsForMemoryThatIsBeingFreed) {
  two_nodes();
  b_->inventory.gpus[0].free_bytes = 1024;
  start_nodes();
  run_job("other");
  run_job();
  a_->end_job(1, 0);  // without a job that has just ended, a full GPU would be refused at once
                      // (RefusesImpossibleMoves)
  EXPECT_EQ(cluster_.get("/v1/jobs/other/wait").json()["state"], "exited");
  expect_error(cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b","timeout_ms":1})"), 409, "refused",
               5);
  auto begun = std::async(std::launch::async,
                          [&] { return cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b"})"); });
  EXPECT_EQ(cluster_.get("/v1/jobs/train").json()["state"], "running");
  b_->set_free(std::uint64_t{8} << 30);
  const auto answer = begun.get();
  ASSERT_EQ(answer.status, 202U) << answer.body;
  EXPECT_EQ(finished(answer.json()["id"])["result"], "done");
}

TEST_F(ApiTest, UnknownProgressIsNull) {
  two_nodes();
  b_->silent_prepare = true;
  start_nodes();
  run_job();
  const json begun = cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b"})").json();
  const auto shown = [&](const wire::MigrationProgress& progress) {
    a_->set_progress(progress);
    while (true) {
      const json m = cluster_.get("/v1/migrations/" + begun["id"].get<std::string>()).json();
      if (m["progress"].is_object() && m["progress"]["round"] == progress.round) return m["progress"];
    }
  };
  wire::MigrationProgress progress;
  progress.round = 2;
  progress.eta_ns = -1;
  const json early = shown(progress);
  EXPECT_EQ(early["dirty_bytes_per_second"], nullptr);
  EXPECT_EQ(early["estimate_ms"], nullptr);
  EXPECT_EQ(early["eta_ms"], nullptr);
  EXPECT_EQ(early["wire_bytes_per_second"], nullptr);
  progress.round = 3;  // a job that writes nothing is now recognized
  progress.estimate_ns = 5'000'000;
  progress.eta_ns = 0;
  progress.wire_bytes_per_second = 41'943'040;
  const json late = shown(progress);
  EXPECT_EQ(late["dirty_bytes_per_second"], 0);
  EXPECT_EQ(late["estimate_ms"], 5.0);
  EXPECT_EQ(late["eta_ms"], 0.0);
  EXPECT_EQ(late["wire_bytes_per_second"], 41'943'040);
}

TEST_F(ApiTest, ReportFieldsHaveAFixedOrder) {
  two_nodes();
  start_nodes();
  run_job();
  const json begun = cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b"})").json();
  finished(begun["id"]);
  const auto body = cluster_.get("/v1/migrations/" + begun["id"].get<std::string>()).body;
  const auto report = nlohmann::ordered_json::parse(body)["report"];
  std::vector<std::string> keys;
  for (const auto& [key, value] : report.items()) keys.push_back(key);
  const std::vector<std::string> expected{"id",
                                          "job",
                                          "result",
                                          "error",
                                          "from",
                                          "to",
                                          "strategy",
                                          "codec",
                                          "network",
                                          "transport",
                                          "rounds",
                                          "state_bytes",
                                          "sent_bytes",
                                          "wire_bytes",
                                          "dirty_bytes",
                                          "context_bytes",
                                          "verified",
                                          "downtime_ms",
                                          "total_ms",
                                          "bound_ms",
                                          "bound_by",
                                          "link_bytes_per_second",
                                          "scan_bytes_per_second",
                                          "downtime_breakdown_ms",
                                          "under_run",
                                          "scan_ms",
                                          "copy_ms",
                                          "estimate_ms",
                                          "estimate_breakdown_ms",
                                          "driver_ms",
                                          "memory_follows_bytes",
                                          "memory_follows_ms",
                                          "remarks",
                                          "incarnation",
                                          "max_downtime_ms",
                                          "limit_kept",
                                          "to_barrier_ms",
                                          "communicators",
                                          "communicators_ms",
                                          "skew_ms",
                                          "staying"};
  EXPECT_EQ(keys, expected);
  EXPECT_EQ(report["max_downtime_ms"], 200.0);
  EXPECT_EQ(report["limit_kept"], report["downtime_ms"].get<double>() <= 200.0);
}

TEST_F(ApiTest, RemarksOfTheTargetAreReportedUpToALimit) {
  two_nodes();
  b_->remarks.assign(10, std::string(100, 'x'));
  b_->remarks[1].resize(1500, 'x');
  b_->remarks.front() = "1 thread was bound to processors that this node lacks (7)";
  start_nodes();
  run_job();
  const json begun = cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b"})").json();
  const json remarks = finished(begun["id"])["report"]["remarks"];
  ASSERT_EQ(remarks.size(), 8U);
  EXPECT_EQ(remarks[0], b_->remarks.front());
  EXPECT_EQ(remarks[1].get<std::string>().size(), 1000U);
  cluster_.wait_for_event("migration-remark", 8);
}

TEST_F(ApiTest, ARefusalByTheTargetLeavesTheJobRunning) {
  two_nodes();
  b_->refuse_prepare = true;
  start_nodes();
  run_job();
  const json begun = cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b"})").json();
  const json m = finished(begun["id"]);
  EXPECT_EQ(m["result"], "refused");
  EXPECT_EQ(m["exit_code"], 5);
  EXPECT_EQ(m["error"], "tensor w1: shapes differ");
  EXPECT_EQ(m["runs_at"], "node-a:0");
  EXPECT_EQ(cluster_.get("/v1/jobs/train").json()["state"], "running");
}

TEST_F(ApiTest, AbortEndsAnOpenMigration) {
  two_nodes();
  b_->silent_prepare = true;
  start_nodes();
  run_job();
  const json begun = cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b"})").json();
  EXPECT_EQ(cluster_.get("/v1/jobs/train").json()["state"], "migrating");
  expect_error(cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b"})"), 409, "refused", 5);
  const std::string id = begun["id"];
  EXPECT_EQ(cluster_.post("/v1/migrations/" + id + "/abort").status, 202U);
  const json m = finished(id);
  EXPECT_EQ(m["result"], "interrupted");
  EXPECT_EQ(m["exit_code"], 2);
  EXPECT_EQ(cluster_.get("/v1/jobs/train").json()["state"], "running");
}

TEST_F(ApiTest, TimeoutEndsAnOpenMigration) {
  two_nodes();
  b_->silent_prepare = true;
  start_nodes();
  run_job();
  const json begun = cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b","timeout_ms":1})").json();
  const json m = finished(begun["id"]);
  EXPECT_EQ(m["result"], "timed-out");
  EXPECT_EQ(m["error"], "The migration did not finish within 1 ms: the standby was not ready");
  EXPECT_EQ(m["exit_code"], 2);
  EXPECT_EQ(m["runs_at"], "node-a:0");
}

}  // namespace
}  // namespace ckpt::coordinator::test
