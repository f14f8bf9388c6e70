// SPDX-License-Identifier: Apache-2.0
// Tests of the coordinator over real sockets. The agents speak the control messages and do nothing.
#include <gtest/gtest.h>

#include <future>

#include "libckpt/base/fd.h"
#include "libckpt/protocol/wire/control_messages.h"
#include "tests/unit/coordinator/api/api_fixture.h"

namespace ckpt::coordinator::test {
namespace {

TEST_F(ApiTest, RequiresTheToken) {
  expect_error(request(cluster_.api_address(), "none", "GET", "/v1/status"), 401, "unauthorized", 64);
  expect_error(request(cluster_.api_address(), std::string(64, 'a'), "GET", "/v1/status"), 401,
               "unauthorized", 64);
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
  EXPECT_EQ(talk(cluster_.api_address(), "nonsense\r\n\r\n").find("200"), std::string::npos);
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

TEST_F(ApiTest, RunsAJobUntilTheJobExits) {
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

TEST_F(ApiTest, NodeWithoutGpusShowsTheReason) {
  two_nodes();
  b_->inventory.gpus.clear();
  b_->inventory.gpu_reason = "libnvidia-ml.so.1 cannot be loaded";
  start_nodes();
  const json nodes = cluster_.get("/v1/nodes").json();
  EXPECT_EQ(nodes[0]["gpu_reason"], nullptr);
  EXPECT_EQ(nodes[1]["gpus"], 0);
  EXPECT_EQ(nodes[1]["gpu_reason"], "libnvidia-ml.so.1 cannot be loaded");
}

TEST_F(ApiTest, RefusesInvalidSubmissions) {
  two_nodes();
  a_->refuse_starts = true;
  start_nodes();
  const auto submit = [&](const char* body) { return cluster_.post("/v1/jobs", body); };
  expect_error(submit(R"({"cwd":"/tmp"})"), 400, "usage", 64);
  expect_error(submit(R"({"argv":["x"],"cwd":"tmp"})"), 400, "usage", 64);
  expect_error(submit(R"({"argv":["x"],"cwd":"/tmp","name":"j7"})"), 400, "usage", 64);
  expect_error(submit(R"({"argv":["x"],"cwd":"/tmp","gpu":0})"), 400, "usage", 64);
  expect_error(submit(R"({"argv":["x"],"cwd":"/tmp","colour":"red"})"), 400, "usage", 64);
  expect_error(submit(R"({"argv":["x"],"cwd":"/tmp","namespaces":"some"})"), 400, "usage", 64);
  expect_error(submit(R"({"argv":["x"],"cwd":"/tmp","namespaces":"own"})"), 400, "usage", 64);
  expect_error(submit(R"({"argv":["x"],"cwd":"/tmp","mode":"transparent","private_tmp":true})"), 400, "usage",
               64);
  expect_error(submit(R"({"argv":["x"],"cwd":"/tmp","gpus":2})"), 409, "refused", 5);
  expect_error(submit(R"({"argv":["x"],"cwd":"/tmp","node":"node-z"})"), 404, "not_found", 5);
  expect_error(submit(R"({"argv":["x"],"cwd":"/tmp","node":"node-a","gpu":5})"), 404, "not_found", 5);
  expect_error(submit(R"({"argv":["x"],"cwd":"/tmp","gpu_memory_bytes":99999999999})"), 409, "refused", 5);
  EXPECT_EQ(a_->starts() + b_->starts(), 0U);
  EXPECT_TRUE(cluster_.get("/v1/jobs").json().empty());
  expect_error(submit(R"({"argv":["x"],"cwd":"/tmp","node":"node-a"})"), 409, "refused", 5);
  EXPECT_EQ(cluster_.get("/v1/jobs").json()[0]["state"], "failed");
}

TEST_F(ApiTest, ProgramThatCannotBeStartedIsReportedWithItsStatus) {
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

TEST_F(ApiTest, AnEndedJobCanBeRemovedButARunningJobCannot) {
  two_nodes();
  start_nodes();
  run_job();
  const auto remove = [&](const std::string& job) {
    return request(cluster_.api_address(), cluster_.token(), "DELETE", "/v1/jobs/" + job);
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

TEST_F(ApiTest, AnEventFitsOnOneLineForAnyReasonText) {
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

TEST_F(ApiTest, EventsAreFilteredAndTheCursorSkipsOmittedEvents) {
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

TEST_F(ApiTest, AVanishedJobIsReportedAsLost) {
  two_nodes();
  start_nodes();
  run_job();
  a_->stop();
  cluster_.wait_for_event("node-lost");
  EXPECT_EQ(cluster_.get("/v1/jobs/train").json()["state"], "unreachable");
  expect_error(cluster_.get("/v1/jobs/train/logs"), 503, "unavailable", 5);
  a_ = agent("node-a");  // node-a returns with an empty inventory
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
    EXPECT_EQ(talk(cluster_.agent_address(), damaged + std::string(64, '\0')), "") << at;
  }
  EXPECT_EQ(talk(cluster_.agent_address(), "GET / HTTP/1.1\r\n\r\n        "), "");
  // The same bytes are sent after the handshake. The handshake's reply arrives, then the connection is
  // closed.
  EXPECT_NE(talk(cluster_.agent_address(), frame + std::string(64, 'x')), "");
  run_job();
  EXPECT_EQ(cluster_.get("/v1/nodes").json().size(), 2U);
}

TEST_F(ApiTest, WrongTokenIsRefusedWithTheReason) {
  wire::Hello hello;
  hello.name = "node-c";
  hello.token = "wrong";
  const auto frame = wire::to_frame(hello, 1).value();
  const std::string answer =
      talk(cluster_.agent_address(), std::string(reinterpret_cast<const char*>(frame.data()), frame.size()));
  EXPECT_NE(answer.find("wrong token"), std::string::npos);
  EXPECT_TRUE(cluster_.get("/v1/nodes").json().empty());
}

TEST_F(ApiTest, SecretFilesAreReadableOnlyByTheOwner) {
  for (const char* name : {"token", "agent-token", "peer-token", "api.json", "state.db", "journal"}) {
    const auto path = std::filesystem::path(cluster_.folder()) / "coordinator" / name;
    EXPECT_EQ(std::filesystem::status(path).permissions() & std::filesystem::perms(0077),
              std::filesystem::perms::none)
        << path;
  }
}

}  // namespace
}  // namespace ckpt::coordinator::test
