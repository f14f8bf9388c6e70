// SPDX-License-Identifier: Apache-2.0
// Tests of findings and their consequences. The nodes speak the control messages and do nothing.
#include "tests/unit/coordinator/support/migration_when.h"
#include "tests/unit/coordinator/support/nodes_fixture.h"

namespace ckpt::coordinator::test {
namespace {

using nlohmann::json;
using wire::HealthOutcome;

class EvacuationsTest : public NodesTest {
 protected:
  void SetUp() override { cluster_.use_images(&images_); }
  void two_nodes(unsigned jobs) {
    node("node-a");
    node("node-b");
    start();
    for (unsigned i = 0; i < jobs; ++i)
      run_job("job-" + std::string(1, static_cast<char>('a' + i)), "node-a");
  }
  // Returns a finding whose outcome is the same for all jobs of the GPU.
  static wire::HealthFinding against_all(std::uint64_t number, HealthOutcome outcome,
                                         std::uint32_t xid = 79) {
    wire::HealthFinding f = finding(number, xid, "Xid " + std::to_string(xid) + " of the test");
    f.outcome = outcome;
    return f;
  }
  static wire::HealthFinding against(std::uint64_t number, JobId job, HealthOutcome outcome) {
    wire::HealthFinding f = finding(number, 94, "contained memory error");
    wire::JobVerdict& verdict = f.jobs.emplace_back();
    verdict.job = job;
    verdict.incarnation = 1;
    verdict.outcome = outcome;
    verdict.reason = "it was the victim";
    return f;
  }
  std::size_t events_of(const std::string& kind) {
    std::size_t count = 0;
    const json all = cluster_.get("/v1/events").json();
    for (const json& event : all["events"]) count += event["kind"] == kind ? 1 : 0;
    return count;
  }
};

TEST_F(EvacuationsTest, FindingsAreStoredOnceAndAcknowledged) {
  two_nodes(0);
  report("node-a", {finding(1, 63, "rows remapped"), finding(2, 64, "remapping failed")});
  node("node-a").wait_for_settings(2, false);
  const json shown = health();
  ASSERT_EQ(shown["findings"].size(), 2U);
  EXPECT_EQ(shown["findings"][0]["xid"], 64);
  EXPECT_EQ(shown["findings"][0]["node"], "node-a");
  EXPECT_EQ(events_of("gpu-health"), 2U);
  restart();
  node("node-a").wait_for_settings(2, false);
  auto again = finding(1, 63, "rows remapped");
  again.time_ms = 5;  // a finding of another life of the node, which counts again
  report("node-a", {again});
  node("node-a").wait_for_settings(1, false);
  EXPECT_EQ(health()["findings"].size(), 3U);
  report("node-a", {again});
  report("node-a", {again, finding(2, 13, "an application's fault")});
  node("node-a").wait_for_settings(2, false);
  EXPECT_EQ(health()["findings"].size(), 4U);
}

TEST_F(EvacuationsTest, JobWithReadableMemoryMovesLive) {
  two_nodes(2);
  report("node-a", {against_all(1, HealthOutcome::kLive, 64)});
  for (const char* name : {"job-a", "job-b"}) {
    const json e = wait_for_evacuation(name, "moved");
    EXPECT_EQ(e["to"], "node-b:0");
    EXPECT_EQ(e["lost_ms"], 0);
    EXPECT_EQ(job(name)["node"], "node-b");
  }
  for (const json& migration : cluster_.get("/v1/migrations").json())
    EXPECT_EQ(migration["reason"], "[gpumigrate] evacuation: Xid 64 of the test");
  const json cordon = cluster_.get("/v1/cordons").json()[0];
  EXPECT_EQ(cordon["place"], "node-a:0");
  EXPECT_EQ(cordon["owner"], "health");
  EXPECT_TRUE(images_.calls().empty());
  // The answer names the owner of the cordon that is cleared, so that the operator knows whose cordon was
  // cleared.
  const json cleared = cluster_.post("/v1/uncordon", R"({"place":"node-a:0"})").json();
  EXPECT_EQ(cleared["cleared"][0]["owner"], "health");
}

TEST_F(EvacuationsTest, JobWithLostMemoryIsRestoredFromItsImage) {
  images_.jobs = {1};
  two_nodes(2);
  report("node-a", {against_all(1, HealthOutcome::kRestore)});
  const json e = wait_for_evacuation("job-a", "restored");
  EXPECT_EQ(e["to"], "node-b:0");
  EXPECT_EQ(e["lost_ms"], 12300);
  EXPECT_NE(e["note"].get<std::string>().find("12.3 s of work are lost"), std::string::npos) << e;
  EXPECT_EQ(images_.calls().at(0).to, Place("node-b", 0));
  EXPECT_EQ(images_.calls().at(0).reason, "[gpumigrate] evacuation: Xid 79 of the test");
  const json without = wait_for_evacuation("job-b", "left");
  EXPECT_NE(without["note"].get<std::string>().find("no image"), std::string::npos) << without;
  EXPECT_TRUE(cluster_.get("/v1/migrations").json().empty());
  EXPECT_EQ(job("job-b")["state"], "running");
}

TEST_F(EvacuationsTest, OutcomeIsDecidedPerProcess) {
  images_.jobs = {1, 2};
  two_nodes(2);
  report("node-a", {against(1, 1, HealthOutcome::kRestore)});  // the outcome of the other jobs is none
  wait_for_evacuation("job-a", "restored");
  EXPECT_EQ(health()["evacuations"].size(), 1U);
  EXPECT_EQ(job("job-b")["node"], "node-a");
}

TEST_F(EvacuationsTest, JobKilledByAFaultIsRestoredFromItsImage) {
  images_.jobs = {1, 2};
  two_nodes(2);
  node("node-a").end_job(1, 1);
  node("node-a").end_job(2, 0);  // job 2 has finished all its work
  for (const char* name : {"job-a", "job-b"}) cluster_.get(std::string("/v1/jobs/") + name + "/wait");
  auto f = against(1, 1, HealthOutcome::kRestore);
  f.jobs.push_back(f.jobs[0]);
  f.jobs[1].job = 2;
  report("node-a", {f});
  wait_for_evacuation("job-a", "restored");
  EXPECT_EQ(health()["evacuations"].size(), 1U);
}

TEST_F(EvacuationsTest, AFailedLiveMoveFallsBackToTheImage) {
  images_.jobs = {1};
  node("node-b").refuse_prepare = true;
  two_nodes(1);
  report("node-a", {against_all(1, HealthOutcome::kLive, 64)});
  const json e = wait_for_evacuation("job-a", "restored");
  EXPECT_EQ(e["migration"], "m1");
  EXPECT_EQ(e["attempts"], 2);
}

TEST_F(EvacuationsTest, EveryRemainingTargetIsTriedBeforeTheImage) {
  images_.jobs = {1};
  node("node-b").refuse_prepare = true;
  node("node-c");
  two_nodes(1);
  report("node-a", {against_all(1, HealthOutcome::kLive, 64)});
  const json e = wait_for_evacuation("job-a", "moved");
  EXPECT_EQ(e["to"], "node-c:0");
  EXPECT_EQ(e["lost_ms"], 0);
  EXPECT_EQ(e["attempts"], 2);
  EXPECT_TRUE(images_.calls().empty());
}

TEST_F(EvacuationsTest, JobWithoutATargetOrImageIsParkedInANewImage) {
  node("node-b").refuse_prepare = true;
  two_nodes(1);
  report("node-a", {against_all(1, HealthOutcome::kLive, 64)});
  const json e = wait_for_evacuation("job-a", "parked");
  EXPECT_EQ(images_.calls().at(0).what, "snapshot+park");
  bool is_told = false;
  const json all = cluster_.get("/v1/events").json();
  for (const json& event : all["events"]) {
    const std::string text = event["text"];
    is_told = is_told || text.find(
                             "parking: every live move of the job failed (node-b:0: m1 refused: "
                             "tensor w1: shapes differ)") != std::string::npos;
  }
  EXPECT_TRUE(is_told) << all;
}

TEST_F(EvacuationsTest, TheActualReasonIsReportedIfNoActionIsPossible) {
  two_nodes(1);
  report("node-a", {against_all(1, HealthOutcome::kRestore)});
  const std::string note = wait_for_evacuation("job-a", "left")["note"];
  EXPECT_NE(note.find("its memory must no longer be read, and the job has no image"), std::string::npos)
      << note;
}

TEST_F(EvacuationsTest, AMoveToAFailingGpuIsAborted) {
  node("node-b").silent_prepare = true;
  two_nodes(1);
  const std::string id =
      cluster_.post("/v1/jobs/job-a/migrate", R"({"to":"node-b"})").json()["id"].get<std::string>();
  report("node-b", {against_all(1, HealthOutcome::kLive, 64)});
  const json m = closed_migration(cluster_, id);
  EXPECT_EQ(m["result"], "failed") << m;
  EXPECT_EQ(m["exit_code"], 1) << m;
  EXPECT_NE(m["error"].get<std::string>().find("node-b:0 no longer accepts jobs: Xid 64"), std::string::npos)
      << m;
  EXPECT_EQ(job("job-a")["node"], "node-a");
}

// The finding arrives when the job is about to run on the GPU. It is too late to abort the move.
TEST_F(EvacuationsTest, AJobMovedToAFailingGpuIsMovedAgain) {
  FakeAgent& b = node("node-b");
  wire::CommitMessage held;
  std::promise<void> committed;
  b.instead = [&](const wire::CommitMessage& message) {
    if (message.to.role != wire::Role::kTarget || !std::holds_alternative<wire::Lease>(message.body))
      return false;
    held = message;
    const wire::Incarnation k = std::get<wire::Lease>(message.body).k;
    b.send_commit(message, wire::Role::kTarget, wire::Role::kCoordinator, wire::Verified());
    b.send_commit(message, wire::Role::kTarget, wire::Role::kCoordinator, wire::Committed(k));
    committed.set_value();
    return true;
  };
  node("node-c");
  two_nodes(1);
  const std::string id =
      cluster_.post("/v1/jobs/job-a/migrate", R"({"to":"node-b"})").json()["id"].get<std::string>();
  committed.get_future().wait();
  report("node-b", {against_all(1, HealthOutcome::kLive, 64)});
  b.wait_for_settings(1, false);
  b.post([&] {
    const wire::Incarnation k = std::get<wire::Lease>(held.body).k;
    b.instead = nullptr;
    b.change(held.job, held.base + 1, wire::JobPhase::kRunning);
    b.send_commit(held, wire::Role::kTarget, wire::Role::kCoordinator, wire::Ran(k));
  });
  const json e = wait_for_evacuation("job-a", "moved");
  EXPECT_EQ(e["from"], "node-b:0") << e;
  EXPECT_EQ(e["to"], "node-a:0") << e;
  EXPECT_EQ(e["reason"], "it was moved to a faulty GPU: Xid 64 of the test");
  EXPECT_EQ(cluster_.get("/v1/migrations/" + id).json()["result"], "done");
}

TEST_F(EvacuationsTest, DecisionToLeaveAJobInPlaceIsMadeOnce) {
  node("node-b").inventory.gpus[0].free_bytes = 0;
  two_nodes(1);
  report("node-a", {against_all(1, HealthOutcome::kRestore)});
  wait_for_evacuation("job-a", "left");
  restart();
  report("node-b", {finding(1, 63, "rows remapped")});  // the coordinator has checked the queue again by then
  node("node-b").wait_for_settings(1, false);
  EXPECT_EQ(health()["evacuations"].size(), 1U) << health();
}

TEST_F(EvacuationsTest, FindingIsShownInTheGpuListTheJobAndTheMetrics) {
  two_nodes(1);
  EXPECT_EQ(cluster_.get("/v1/gpus").json()[0]["finding"], nullptr);
  report("node-a", {against_all(1, HealthOutcome::kRestore)});
  wait_for_evacuation("job-a", "left");
  const json gpu = cluster_.get("/v1/gpus").json()[0];
  EXPECT_FALSE(gpu["healthy"].get<bool>()) << gpu;
  EXPECT_EQ(gpu["reason"], "Xid 79 of the test (cordoned)") << gpu;
  EXPECT_EQ(job("job-a")["trouble"], "node-a:0: Xid 79 of the test (cordoned)");
  const std::string page = cluster_.get("/metrics").body;
  for (const char* line :
       {"gpumigrate_gpu_healthy{node=\"node-a\",gpu=\"0\"} 0\n",
        "gpumigrate_gpu_healthy{node=\"node-b\",gpu=\"0\"} 1\n", "gpumigrate_jobs_left_on_bad_gpu 1\n",
        "gpumigrate_breaker_open 0\n", "gpumigrate_evacuations_open 0\n"})
    EXPECT_NE(page.find(line), std::string::npos) << line;
  node("node-a").end_job(1, 0);
  cluster_.wait_for_event("job-ended");
  EXPECT_NE(cluster_.get("/metrics").body.find("gpumigrate_jobs_left_on_bad_gpu 0\n"), std::string::npos);
}

TEST_F(EvacuationsTest, AnUncordonedGpuReceivesNoJobShortlyAfterItsFinding) {
  two_nodes(0);
  report("node-a", {against_all(1, HealthOutcome::kRestore)});
  cluster_.wait_for_event("cordoned");
  const json opened = cluster_.post("/v1/uncordon", R"({"place":"node-a:0"})").json();
  ASSERT_EQ(opened["suspect"].size(), 1U) << opened;
  EXPECT_EQ(opened["suspect"][0]["place"], "node-a:0");
  const std::string run = R"({"argv":["./train"],"cwd":"/tmp","node":"node-a","name":"train"})";
  const auto refused = cluster_.post("/v1/jobs", run);
  EXPECT_EQ(refused.status, 409U) << refused.body;
  EXPECT_NE(refused.body.find("suspect until"), std::string::npos) << refused.body;
  restart();
  const json forgiven = cluster_.post("/v1/uncordon", R"({"place":"node-a","forgive":true})").json();
  EXPECT_EQ(forgiven["suspect"].size(), 0U) << forgiven;
  ASSERT_EQ(forgiven["forgiven"].size(), 1U) << forgiven;
  EXPECT_EQ(forgiven["forgiven"][0]["place"], "node-a:0");
  restart();  // the operator's decision survives the restart
  EXPECT_EQ(cluster_.post("/v1/jobs", run).status, 201U);
}

TEST_F(EvacuationsTest, ALiveMoveHasAShortDeadline) {
  cluster_.config().evacuation_live_deadline_ms = 200;
  images_.jobs = {1};
  node("node-b").silent_prepare = true;
  two_nodes(1);
  report("node-a", {against_all(1, HealthOutcome::kLive, 64)});
  wait_for_evacuation("job-a", "restored");
  EXPECT_EQ(cluster_.get("/v1/migrations/m1").json()["result"], "timed-out");
}

TEST_F(EvacuationsTest, JobWithAnImageButNoTargetIsParked) {
  images_.jobs = {1};
  node("node-b").inventory.gpus[0].free_bytes = 0;
  two_nodes(1);
  report("node-a", {against_all(1, HealthOutcome::kLive, 64)});
  wait_for_evacuation("job-a", "parked");
  EXPECT_EQ(images_.calls().at(0).what, "snapshot+park");  // the job runs, and its memory can be read
}

TEST_F(EvacuationsTest, JobIsNeverMovedToASuspectGpu) {
  images_.jobs = {1};
  two_nodes(1);
  auto suspicion = finding(1, 94, "another's contained error");
  suspicion.cordon = false;
  suspicion.outcome = HealthOutcome::kRestore;
  report("node-b", {suspicion});
  node("node-b").wait_for_settings(1, false);
  report("node-a", {against_all(1, HealthOutcome::kRestore)});
  wait_for_evacuation("job-a", "parked");
  EXPECT_EQ(images_.calls().at(0).what, "park");
}

TEST_F(EvacuationsTest, PredictiveEvacuationWaitsForMemoryAndLosesNoWork) {
  images_.jobs = {1, 2};
  node("node-b").inventory.gpus[0].free_bytes = 0;
  two_nodes(2);
  auto predictive = against_all(1, HealthOutcome::kLive, 63);
  predictive.urgent = predictive.cordon = false;
  report("node-a", {predictive});
  const json waiting = wait_for_evacuation("job-a", "queued");
  EXPECT_NE(waiting["note"].get<std::string>().find("once a GPU has enough free memory"), std::string::npos)
      << waiting;
  node("node-b").set_free(std::uint64_t{8} << 30);
  wait_for_evacuation("job-a", "moved");
  wait_for_evacuation("job-b", "moved");
  EXPECT_TRUE(images_.calls().empty());
  const json migrations = cluster_.get("/v1/migrations").json();  // the migrations ran one after the other
  EXPECT_LE(migrations[1]["ended"].get<std::string>(), migrations[0]["started"].get<std::string>());
}

TEST_F(EvacuationsTest, NoJobIsEvacuatedFromAPausedNode) {
  two_nodes(1);
  EXPECT_EQ(cluster_.post("/v1/policy/pause", R"({"node":"node-z"})").status, 404U);
  EXPECT_EQ(cluster_.post("/v1/policy/pause", R"({"node":"node-a","reason":"driver"})").status, 200U);
  node("node-a").wait_for_settings(0, true);
  restart();
  node("node-a").wait_for_settings(0, true);
  report("node-a", {against_all(1, HealthOutcome::kLive, 64)});
  node("node-a").wait_for_settings(1, true);
  EXPECT_EQ(health()["findings"].size(), 1U);
  EXPECT_TRUE(health()["evacuations"].empty());
  EXPECT_TRUE(cluster_.get("/v1/cordons").json().empty());
  EXPECT_EQ(cluster_.get("/v1/nodes").json()[0]["evacuation"], "paused");
  EXPECT_EQ(health()["findings"][0]["paused"], true);
  EXPECT_EQ(cluster_.post("/v1/policy/resume", R"({"node":"node-a"})").status, 200U);
  EXPECT_EQ(cluster_.get("/v1/gpus").json()[0]["finding"], nullptr) << "also not later";
  restart();
  EXPECT_EQ(health()["findings"][0]["paused"], true);
  EXPECT_EQ(cluster_.get("/v1/gpus").json()[0]["finding"], nullptr) << "also not later";
  node("node-a").wait_for_settings(1, false);
  report("node-a", {against_all(2, HealthOutcome::kLive, 64)});
  wait_for_evacuation("job-a", "moved");
}

TEST_F(EvacuationsTest, AnOpenBreakerStopsAutomaticEvacuation) {
  cluster_.config().evacuation_breaker_count = 2;
  cluster_.config().evacuation_parallel = 1;
  two_nodes(4);
  report("node-a", {against_all(1, HealthOutcome::kLive, 64)});
  cluster_.wait_for_event("breaker-open");
  EXPECT_EQ(cluster_.get("/v1/nodes").json()[0]["evacuation"], "stopped");
  EXPECT_TRUE(cluster_.get("/v1/status").json()["breaker_open"].get<bool>());
  EXPECT_EQ(wait_for_evacuation("job-c", "queued")["note"], "the circuit breaker is open");
  EXPECT_EQ(cluster_.get("/v1/migrations").json().size(), 2U);
  restart();
  EXPECT_TRUE(health()["policy"]["breaker"]["open"].get<bool>());
  EXPECT_EQ(cluster_.get("/v1/migrations").json().size(), 2U);
  EXPECT_EQ(cluster_.post("/v1/policy/reset-breaker").status, 200U);
  wait_for_evacuation("job-d", "moved");
}

TEST_F(EvacuationsTest, ARestartNeitherRepeatsNorForgetsAnEvacuation) {
  images_.jobs = {1};
  images_.restore_fails = Error(ErrorCode::kIo, "the checkpoint store's disk is broken");
  two_nodes(1);
  const auto f = against_all(1, HealthOutcome::kRestore);
  report("node-a", {f});
  wait_for_evacuation("job-a", "queued");  // the job is not restored; the next change triggers another
                                           // attempt
  restart();
  report("node-a", {f});
  // The evacuation waits for an inventory. An inventory that arrives during an attempt does not count, so
  // inventories are sent until the job is left.
  while (health()["evacuations"][0]["state"] != "left") node("node-b").set_free(std::uint64_t{8} << 30);
  EXPECT_EQ(images_.calls().size(), 3U);  // the cap counts the attempts before and after the restart
  EXPECT_EQ(health()["evacuations"].size(), 1U);
  EXPECT_EQ(health()["findings"].size(), 1U);
}

}  // namespace
}  // namespace ckpt::coordinator::test
