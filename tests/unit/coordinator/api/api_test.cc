// SPDX-License-Identifier: Apache-2.0
// The coordinator over real sockets, with agents that speak the control messages and do nothing.
#include <gtest/gtest.h>

#include <future>

#include "libckpt/base/fd.h"
#include "libckpt/protocol/wire/control_messages.h"
#include "tests/unit/coordinator/support/cluster.h"
#include "tests/unit/coordinator/support/fake_agent.h"

namespace ckpt::coordinator::test {
namespace {

using nlohmann::json;

class ApiTest : public ::testing::Test {
 protected:
  void SetUp() override { cluster_.start(); }
  std::unique_ptr<FakeAgent> agent(const std::string& node) {
    return std::make_unique<FakeAgent>(node, cluster_.agent_address(), cluster_.agent_token());
  }
  void two_nodes() {
    a_ = agent("node-a");
    b_ = agent("node-b");
  }
  void start_nodes() {
    a_->start();
    b_->start();
    cluster_.wait_for_event("node-ready", 2);
  }
  json run_job(const std::string& name = "train") {
    const auto answer = cluster_.post(
        "/v1/jobs", R"({"argv":["./train"],"cwd":"/tmp","node":"node-a","name":")" + name + "\"}");
    EXPECT_EQ(answer.status, 201U) << answer.body;
    return answer.json();
  }
  json finished(const std::string& migration) {
    std::uint64_t since = 0;
    while (true) {
      const auto answer =
          cluster_.get("/v1/migrations/" + migration + "/watch?since=" + std::to_string(since));
      if (answer.status != 200) return answer.body;
      const json m = answer.json();
      if (!m["open"].get<bool>()) return m;
      since = m["revision"].get<std::uint64_t>();
    }
  }
  static void expect_error(const HttpAnswer& answer, unsigned status, const std::string& code,
                           int exit_code) {
    EXPECT_EQ(answer.status, status) << answer.body;
    const json error = answer.json()["error"];
    EXPECT_EQ(error["code"], code) << answer.body;
    EXPECT_EQ(error["exit_code"], exit_code) << answer.body;
    EXPECT_FALSE(error["message"].get<std::string>().empty());
  }

  Cluster cluster_;
  std::unique_ptr<FakeAgent> a_;
  std::unique_ptr<FakeAgent> b_;
};

TEST_F(ApiTest, WantsTheToken) {
  expect_error(request(cluster_.api_port(), "", "GET", "/v1/status"), 401, "unauthorized", 64);
  expect_error(request(cluster_.api_port(), std::string(64, 'a'), "GET", "/v1/status"), 401, "unauthorized",
               64);
  EXPECT_EQ(cluster_.get("/v1/status").json()["nodes"], 0);
}

TEST_F(ApiTest, UnknownCallsAreRefused) {
  for (const char* target : {"/", "/v2/jobs", "/v1/nothing", "/v1/status/x"})
    EXPECT_EQ(cluster_.get(target).json()["error"]["code"], "usage") << target;
  EXPECT_EQ(cluster_.post("/v1/status").json()["error"]["code"], "usage");
  expect_error(cluster_.get("/v1/jobs/none"), 404, "not_found", 5);
  expect_error(cluster_.get("/v1/migrations/m1"), 404, "not_found", 5);
  expect_error(cluster_.get("/v1/%zz"), 400, "usage", 64);
  expect_error(cluster_.post("/v1/jobs", std::string(600 << 10, ' ')), 413, "usage", 64);
  EXPECT_EQ(talk(cluster_.api_port(), "nonsense\r\n\r\n").find("200"), std::string::npos);
}

TEST_F(ApiTest, ShowsNodesAndGpus) {
  two_nodes();
  start_nodes();
  const json nodes = cluster_.get("/v1/nodes").json();
  ASSERT_EQ(nodes.size(), 2U);
  EXPECT_EQ(nodes[0]["name"], "node-a");
  EXPECT_EQ(nodes[0]["state"], "ready");
  const json gpus = cluster_.get("/v1/gpus").json();
  ASSERT_EQ(gpus.size(), 2U);
  EXPECT_EQ(gpus[1]["uuid"], "GPU-node-b");
  b_->stop();
  cluster_.wait_for_event("node-lost");
  EXPECT_EQ(cluster_.get("/v1/nodes").json()[1]["state"], "unreachable");
}

TEST_F(ApiTest, RunsAJobToItsEnd) {
  two_nodes();
  start_nodes();
  const json job = run_job();
  EXPECT_EQ(job["node"], "node-a");
  EXPECT_EQ(job["exit_code"], nullptr);
  const json detail = cluster_.get("/v1/jobs/train").json();
  EXPECT_EQ(detail["state"], "running");
  EXPECT_EQ(detail["argv"], json::array({"./train"}));
  EXPECT_TRUE(detail["movable"].get<bool>());
  EXPECT_EQ(detail["state_bytes"], 1 << 20);
  a_->end_job(1, 3);
  const json ended = cluster_.get("/v1/jobs/train/wait?timeout_ms=30000").json();
  EXPECT_EQ(ended["state"], "exited");
  EXPECT_EQ(ended["exit_code"], 3);
  const auto log = cluster_.get("/v1/jobs/train/logs?offset=4");
  EXPECT_EQ(log.body, "two\n");
  EXPECT_EQ(log.headers.at("X-Next-Offset"), "8");
  EXPECT_EQ(log.headers.at("X-Ended"), "true");
  run_job();  // the name is free again
}

TEST_F(ApiTest, RefusesBadSubmissions) {
  two_nodes();
  a_->refuse_starts = true;
  start_nodes();
  const auto submit = [&](const char* body) { return cluster_.post("/v1/jobs", body); };
  expect_error(submit(R"({"cwd":"/tmp"})"), 400, "usage", 64);
  expect_error(submit(R"({"argv":["x"],"cwd":"tmp"})"), 400, "usage", 64);
  expect_error(submit(R"({"argv":["x"],"cwd":"/tmp","name":"j7"})"), 400, "usage", 64);
  expect_error(submit(R"({"argv":["x"],"cwd":"/tmp","gpu":0})"), 400, "usage", 64);
  expect_error(submit(R"({"argv":["x"],"cwd":"/tmp","colour":"red"})"), 400, "usage", 64);
  expect_error(submit(R"({"argv":["x"],"cwd":"/tmp","gpus":2})"), 501, "refused", 5);
  expect_error(submit(R"({"argv":["x"],"cwd":"/tmp","node":"node-z"})"), 404, "not_found", 5);
  expect_error(submit(R"({"argv":["x"],"cwd":"/tmp","node":"node-a","gpu":5})"), 404, "not_found", 5);
  expect_error(submit(R"({"argv":["x"],"cwd":"/tmp","gpu_memory_bytes":99999999999})"), 409, "refused", 5);
  EXPECT_EQ(a_->starts() + b_->starts(), 0U);
  EXPECT_TRUE(cluster_.get("/v1/jobs").json().empty());
  expect_error(submit(R"({"argv":["x"],"cwd":"/tmp","node":"node-a"})"), 409, "refused", 5);
  EXPECT_EQ(cluster_.get("/v1/jobs").json()[0]["state"], "failed");
}

TEST_F(ApiTest, ProgramThatCannotBeStartedHasItsStatus) {
  two_nodes();
  a_->refuse_starts = true;
  a_->refused_program_status = 127;
  start_nodes();
  const auto answer = cluster_.post("/v1/jobs", R"({"argv":["nosuch"],"cwd":"/tmp","node":"node-a"})");
  expect_error(answer, 409, "refused", 127);
  const json job = cluster_.get("/v1/jobs").json()[0];
  EXPECT_EQ(job["state"], "failed");
  EXPECT_EQ(job["exit_code"], 127);
}

TEST_F(ApiTest, EndedJobIsRemovedAndALiveOneIsNot) {
  two_nodes();
  start_nodes();
  run_job();
  const auto remove = [&](const std::string& job) {
    return request(cluster_.api_port(), cluster_.token(), "DELETE", "/v1/jobs/" + job);
  };
  expect_error(remove("train"), 409, "refused", 5);
  a_->end_job(1, 3);
  EXPECT_EQ(cluster_.get("/v1/jobs/train/wait?timeout_ms=30000").json()["state"], "exited");
  const auto removed = remove("train");
  EXPECT_EQ(removed.status, 200U) << removed.body;
  EXPECT_TRUE(cluster_.get("/v1/jobs").json().empty());
  expect_error(remove("train"), 404, "not_found", 5);
  cluster_.wait_for_event("job-removed");
}

TEST_F(ApiTest, AnEventIsOneLineWhateverItsReasonIs) {
  two_nodes();
  start_nodes();
  run_job();
  const json begun =
      cluster_
          .post("/v1/jobs/train/migrate", R"({"to":"node-b","reason":"fan\njob-lost job other (j9)\u0007"})")
          .json();
  finished(begun["id"]);
  const json events = cluster_.get("/v1/events").json()["events"];
  const bool found = std::any_of(events.begin(), events.end(), [](const json& event) {
    return event["text"].get<std::string>().ends_with(": fan job-lost job other (j9) ");
  });
  EXPECT_TRUE(found) << events.dump(1);
}

TEST_F(ApiTest, EventsAreFilteredAndTheCursorPassesWhatIsLeftOut) {
  two_nodes();
  start_nodes();
  run_job("one");
  run_job("two");
  const auto kinds = [&](const std::string& filter) {
    json found = json::array();
    const json answer = cluster_.get("/v1/events?" + filter).json();
    for (const json& event : answer.at("events"))
      found.push_back(event["kind"].get<std::string>() + " " + event["job"].dump());
    return found;
  };
  const std::string two = cluster_.get("/v1/jobs/two").json()["id"].dump();
  EXPECT_EQ(kinds("job=two"), json::array({"job-started " + two}));
  EXPECT_EQ(kinds("type=job-started&since_ms=1").size(), 2U);
  EXPECT_EQ(kinds("type=job-ended,job-started&job=two").size(), 1U);
  EXPECT_TRUE(kinds("since_ms=4000000000000").empty());
  expect_error(cluster_.get("/v1/events?job=nobody"), 404, "not_found", 5);
  const json all = cluster_.get("/v1/events").json();
  const json none = cluster_.get("/v1/events?type=job-lost").json();
  EXPECT_EQ(none["next"], all["next"]);
  EXPECT_TRUE(none["events"].empty());
  const json first = cluster_.get("/v1/events?type=job-started&limit=1").json();
  EXPECT_EQ(first["events"].size(), 1U);
  EXPECT_EQ(first["next"], first["events"][0]["id"]);
}

TEST_F(ApiTest, NamesAreUniqueAmongLiveJobs) {
  two_nodes();
  start_nodes();
  run_job("same");
  expect_error(cluster_.post("/v1/jobs", R"({"argv":["x"],"cwd":"/tmp","name":"same"})"), 409, "refused", 5);
}

TEST_F(ApiTest, StopsAJob) {
  two_nodes();
  start_nodes();
  run_job();
  EXPECT_EQ(cluster_.post("/v1/jobs/train/stop").status, 202U);
  EXPECT_EQ(cluster_.get("/v1/jobs/train/wait").json()["exit_code"], 143);
}

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
  const json report = m["report"];
  EXPECT_DOUBLE_EQ(report["downtime_ms"], 8);
  double sum = 0;
  for (const auto& [piece, ms] : report["downtime_breakdown_ms"].items()) sum += ms.get<double>();
  EXPECT_DOUBLE_EQ(sum, report["downtime_ms"]);
  EXPECT_EQ(report["dirty_bytes"], 1 << 19);
  EXPECT_EQ(report["copy_ms"], 0.0);  // nothing to copy is known, not unknown
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

TEST_F(ApiTest, AMigrationThatFailedIsOverOnceItsJobRunsAgain) {
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
  EXPECT_EQ(cluster_.get("/v1/jobs/train").json()["state"], "running");
}

TEST_F(ApiTest, MigrationEndsWhenItsSourceEndsBeforeTheJobRunsAgain) {
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

TEST_F(ApiTest, MigrationAbortedByItsSourceHasTheReason) {
  two_nodes();
  a_->leaves = wire::Reason(ErrorCode::kAborted, "the job's process has ended");
  start_nodes();
  run_job();
  const std::string id = cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b"})").json()["id"];
  const json m = finished(id);
  EXPECT_EQ(m["result"], "failed") << m;
  EXPECT_EQ(m["error"], "the job's process has ended") << m;
}

TEST_F(ApiTest, DryRunTouchesNothing) {
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

TEST_F(ApiTest, AJobThatHasNotMovedShowsItsNodesEstimate) {
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

TEST_F(ApiTest, AnAgentThatDoesNotKnowAPauseShowsNone) {
  two_nodes();
  start_nodes();
  run_job();
  const json job = cluster_.get("/v1/jobs/train").json();
  EXPECT_EQ(job["expected_pause_ms"]["between_nodes"], nullptr) << job;
  EXPECT_EQ(job["expected_pause_from"]["between_nodes"], nullptr) << job;
}

TEST_F(ApiTest, OptionsOfCopyingReachTheSourceAndAreShown) {
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

TEST_F(ApiTest, RefusesOptionsOfCopyingThatMakeNoSense) {
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
  expect_error(migrate(R"({"mode":"magic"})"), 400, "usage", 64);
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
  a_->end_job(1, 0);  // while nothing has ended, a full GPU is refused at once: RefusesImpossibleMoves
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
  progress.round = 3;  // now a job that writes nothing is known as such
  progress.estimate_ns = 5'000'000;
  progress.eta_ns = 0;
  progress.wire_bytes_per_second = 41'943'040;
  const json late = shown(progress);
  EXPECT_EQ(late["dirty_bytes_per_second"], 0);
  EXPECT_EQ(late["estimate_ms"], 5.0);
  EXPECT_EQ(late["eta_ms"], 0.0);
  EXPECT_EQ(late["wire_bytes_per_second"], 41'943'040);
}

TEST_F(ApiTest, TheReportsFieldsStandInTheirOrder) {
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
                                          "from",
                                          "to",
                                          "mode",
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
                                          "incarnation",
                                          "max_downtime_ms",
                                          "limit_kept"};
  EXPECT_EQ(keys, expected);
  EXPECT_EQ(report["max_downtime_ms"], 200.0);
  EXPECT_EQ(report["limit_kept"], report["downtime_ms"].get<double>() <= 200.0);
}

TEST_F(ApiTest, ATargetThatRefusesLeavesTheJobAlone) {
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
  EXPECT_EQ(m["error"], "Not done within 1 ms: the standby was not ready");
  EXPECT_EQ(m["exit_code"], 2);
  EXPECT_EQ(m["runs_at"], "node-a:0");
}

TEST_F(ApiTest, JobsAndMigrationsSurviveARestart) {
  two_nodes();
  b_->silent_prepare = true;
  start_nodes();
  run_job();
  const std::string id = cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b"})").json()["id"];
  cluster_.stop();
  cluster_.start();
  cluster_.wait_for_event("node-ready", 4);
  EXPECT_EQ(cluster_.get("/v1/jobs/train").json()["state"], "migrating");
  EXPECT_EQ(cluster_.post("/v1/migrations/" + id + "/abort").status, 202U);
  EXPECT_EQ(finished(id)["result"], "interrupted");
  EXPECT_EQ(cluster_.get("/v1/jobs/train").json()["state"], "running");
  a_->end_job(1, 0);
  EXPECT_EQ(cluster_.get("/v1/jobs/train/wait").json()["exit_code"], 0);
}

TEST_F(ApiTest, AJobThatVanishedIsLost) {
  two_nodes();
  start_nodes();
  run_job();
  a_->stop();
  cluster_.wait_for_event("node-lost");
  EXPECT_EQ(cluster_.get("/v1/jobs/train").json()["state"], "unreachable");
  expect_error(cluster_.get("/v1/jobs/train/logs"), 503, "unavailable", 5);
  a_ = agent("node-a");  // came back with nothing
  a_->start();
  const json job = cluster_.get("/v1/jobs/train/wait").json();
  EXPECT_EQ(job["state"], "lost");
  EXPECT_EQ(job["exit_code"], 125);
}

TEST_F(ApiTest, DamagedFramesOnTheControlPortAreDropped) {
  two_nodes();
  start_nodes();
  wire::Hello hello;
  hello.name = "node-c";
  hello.token = cluster_.agent_token();
  const auto good = wire::to_frame(hello, 1).value();
  const std::string frame(reinterpret_cast<const char*>(good.data()), good.size());
  for (std::size_t at : {0, 4, 6, 8, 12, 30}) {
    std::string damaged = frame;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
    EXPECT_EQ(talk(cluster_.agent_port(), damaged + std::string(64, '\0')), "") << at;
  }
  EXPECT_EQ(talk(cluster_.agent_port(), "GET / HTTP/1.1\r\n\r\n        "), "");
  // After the handshake, too: its reply comes, then the connection is closed.
  EXPECT_NE(talk(cluster_.agent_port(), frame + std::string(64, 'x')), "");
  run_job();
  EXPECT_EQ(cluster_.get("/v1/nodes").json().size(), 2U);
}

TEST_F(ApiTest, WrongTokenIsAnsweredWithTheReason) {
  wire::Hello hello;
  hello.name = "node-c";
  hello.token = "wrong";
  const auto frame = wire::to_frame(hello, 1).value();
  const std::string answer =
      talk(cluster_.agent_port(), std::string(reinterpret_cast<const char*>(frame.data()), frame.size()));
  EXPECT_NE(answer.find("wrong token"), std::string::npos);
  EXPECT_TRUE(cluster_.get("/v1/nodes").json().empty());
}

TEST_F(ApiTest, SecretFilesAreReadableByTheOwnerOnly) {
  for (const char* name : {"token", "agent-token", "peer-token", "api.json", "state.db", "journal"}) {
    const auto path = std::filesystem::path(cluster_.folder()) / "coordinator" / name;
    EXPECT_EQ(std::filesystem::status(path).permissions() & std::filesystem::perms(0077),
              std::filesystem::perms::none)
        << path;
  }
}

}  // namespace
}  // namespace ckpt::coordinator::test
