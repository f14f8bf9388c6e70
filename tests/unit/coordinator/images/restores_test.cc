// SPDX-License-Identifier: Apache-2.0
// Tests of restores: what is refused, what is lost, and what continues after a restart.
#include <filesystem>
#include <fstream>
#include <iterator>

#include "libckpt/base/clock.h"
#include "libckpt/protocol/wire/health_messages.h"
#include "tests/unit/coordinator/images/images_fixture.h"

namespace ckpt::coordinator::test {
namespace {

TEST_F(ImagesTest, ARunningJobIsRolledBack) {
  a_.checkpoint_store->age_ms = 5'000;
  order("snapshot", R"({"to":"/vault"})");
  const json task = order("restore", R"({"accept_loss":true,"to":"node-b"})");
  EXPECT_EQ(task["exit_code"], 3) << task;
  EXPECT_GE(task["restored"]["lost_ms"].get<std::int64_t>(), 5'000);
  EXPECT_EQ(task["restored"]["at"], "node-b:0");
  EXPECT_EQ(task["restored"]["incarnation"], 2);
  EXPECT_TRUE(alive(a_).empty());
  EXPECT_EQ(alive(b_), Incarnations{2});
  EXPECT_EQ(job()["state"], "running");
  EXPECT_EQ(job()["node"], "node-b");
  EXPECT_EQ(job()["incarnation"], 2);
  b_.agent->end_job(1, 0);
  cluster_.wait_for_event("job-ended");
  EXPECT_EQ(job()["exit_code"], 0);
}

void lose_the_store(Cluster& cluster) {
  cluster.stop();
  for (const auto& entry : std::filesystem::directory_iterator(cluster.config().folder())) {
    const std::string name = entry.path().filename();
    if (name.starts_with("state.db") || name.starts_with("journal"))
      std::filesystem::remove_all(entry.path());
  }
  cluster.start();
}

// The store is lost, and the job with it. A node still lists the job's image.
TEST_F(ImagesTest, OnlyAnAdminResumesAnUnknownJobFromItsImage) {
  order("suspend");
  lose_the_store(cluster_);
  ASSERT_EQ(cluster_.post("/v1/recovery/open", R"({"for_ms":600000})").status, 200U);
  const auto listed = [&] { return cluster_.get("/v1/images").json().size() == 1; };
  wait_until(listed);
  std::ifstream file(cluster_.config().folder() + "/operator-token");
  const std::string token{std::istreambuf_iterator<char>(file), {}};
  const auto refused = request(cluster_.api_address(), token.substr(0, token.find('\n')), "POST",
                               "/v1/jobs/train/resume", "{}");
  expect_refused(refused, 403, "needs the role admin, and yours is operator");
  EXPECT_EQ(cluster_.get("/v1/jobs").json(), json::array());
  const json task = finished(cluster_.post("/v1/jobs/train/resume").json());
  EXPECT_EQ(task["exit_code"], 0) << task;
}

TEST_F(ImagesTest, UnknownJobIsNotContinuedFromAnImageOfASet) {
  order("suspend");
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->rows["node-a"].back().set = 9;
  }
  lose_the_store(cluster_);
  ASSERT_EQ(cluster_.post("/v1/recovery/open", R"({"for_ms":600000})").status, 200U);
  wait_until([&] { return cluster_.get("/v1/images").json().size() == 1; });
  const json resting = cluster_.get("/v1/recovery").json()["images_of_unknown_jobs"];
  ASSERT_EQ(resting.size(), 1U) << resting;
  EXPECT_NE(resting[0]["obstacle"].dump().find("is one of a set"), std::string::npos) << resting;
  expect_refused(cluster_.post("/v1/jobs/train/resume"), 409, "is one of a set");
}

TEST_F(ImagesTest, RestoreOfARunningJobRequiresAcceptedLoss) {
  a_.checkpoint_store->age_ms = 5'000;
  order("snapshot", R"({"to":"/vault"})");
  expect_refused(cluster_.post("/v1/jobs/train/restore", R"({"to":"node-b"})"), 409, "--accept-loss");
  EXPECT_EQ(alive(a_), Incarnations{1});
  const json dry = cluster_.post("/v1/jobs/train/restore", R"({"to":"node-b","dry_run":true})").json();
  EXPECT_GE(dry["lost_ms"].get<std::int64_t>(), 5'000) << dry;
  EXPECT_TRUE(dry["runs"].get<bool>());
  EXPECT_EQ(dry["to"], "node-b:0");
  EXPECT_FALSE(dry["possible"].get<bool>());
  EXPECT_EQ(alive(a_), Incarnations{1});
}

TEST_F(ImagesTest, RestoreFromAnOlderImageRequiresAcceptedLoss) {
  a_.checkpoint_store->age_ms = 5'000;
  order("snapshot");
  a_.checkpoint_store->age_ms = 0;
  order("suspend");
  const auto older = cluster_.post("/v1/jobs/train/restore", R"({"image":"j1.v1@node-a"})");
  expect_refused(older, 409, "has continued since j1.v1@node-a");
  EXPECT_EQ(job()["state"], "parked");
  EXPECT_EQ(order("restore")["restored"]["lost_ms"], 0);
}

TEST_F(ImagesTest, AnEndedJobIsNotRestoredBesideALiveJobOfItsName) {
  order("snapshot", R"({"to":"/vault"})");
  a_.agent->end_job(1, 0);
  cluster_.wait_for_event("job-ended");
  const auto ranks = cluster_.post(
      "/v1/jobs", R"({"argv":["./train"],"cwd":"/tmp","name":"train","ranks":2,"nodes":["node-a","node-b"],
                      "env":{"MASTER_ADDR":"x","MASTER_PORT":"1"}})");
  ASSERT_EQ(ranks.status, 201U) << ranks.body;
  expect_refused(cluster_.post("/v1/jobs/j1/restore", kAccept), 409,
                 "another job that has not ended uses the same name");
}

TEST_F(ImagesTest, RestoreOfAStoppedParkedJobLosesNoWork) {
  a_.checkpoint_store->age_ms = 5'000;
  order("suspend");
  EXPECT_EQ(cluster_.post("/v1/jobs/train/stop").json()["state"], "exited");
  restart_coordinator();
  cluster_.wait_for_event("node-ready", 4);
  const json task = order("restore");
  EXPECT_EQ(task["exit_code"], 0) << task;
  EXPECT_EQ(task["restored"]["lost_ms"], 0);
}

TEST_F(ImagesTest, ADryRunReportsTheImageOfTheRestore) {
  a_.checkpoint_store->age_ms = 60'000;
  order("snapshot", R"({"to":"/vault"})");
  {
    const std::lock_guard lock(shared_->mutex);
    wire::ImageRow newer = shared_->rows["/vault"].front();  // an image that no node has reported yet
    ++newer.version;
    newer.created_ms += 30'000;
    shared_->rows["/vault"].push_back(newer);
  }
  const std::string wish = R"({"accept_loss":true,"to":"node-b","dry_run":true})";
  const json dry = cluster_.post("/v1/jobs/train/restore", wish).json();
  EXPECT_LT(dry["lost_ms"].get<std::int64_t>(), 50'000) << dry;
  const json task = order("restore", kAccept);
  EXPECT_EQ(task["restored"]["image"], dry["image"]) << dry << task;
}

TEST_F(ImagesTest, NoInstanceIsEndedForAnUnreadableImage) {
  order("snapshot", R"({"to":"/vault"})");
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->rows["/vault"].clear();  // the image was removed by hand
  }
  expect_refused(cluster_.post("/v1/jobs/train/restore", kAccept), 503, "no complete copy of image");
  EXPECT_EQ(alive(a_), Incarnations{1});
  EXPECT_EQ(job()["state"], "running");
}

TEST_F(ImagesTest, RestoreOfAJobOnALostNodeRequiresForceAndFencesTheNode) {
  order("snapshot", R"({"to":"/vault"})");
  go_away(a_);
  expect_refused(cluster_.post("/v1/jobs/train/restore"), 409, "--force");
  const json task = order("restore", R"({"accept_loss":true,"force":true})");
  EXPECT_EQ(task["restored"]["incarnation"], 2) << task;
  EXPECT_EQ(alive(b_), Incarnations{2});
  EXPECT_EQ(alive_of(a_), Incarnations{1});  // the old instance continued to run
  come_back(a_, "node-a");
  cluster_.wait_for_event("node-ready", 3);
  wait_until_none(a_);
  EXPECT_EQ(job()["node"], "node-b");
  EXPECT_EQ(job()["state"], "running");
}

TEST_F(ImagesTest, RestoreOfAJobStoppedOnALostNodeRequiresForce) {
  order("snapshot", R"({"to":"/vault"})");
  go_away(a_);
  EXPECT_EQ(cluster_.post("/v1/jobs/train/stop").json()["state"], "stopping");
  expect_refused(cluster_.post("/v1/jobs/train/restore", kAccept), 409, "--force");
  restart_coordinator();
  cluster_.wait_for_event("node-ready", 3);
  expect_refused(cluster_.post("/v1/jobs/train/restore", kAccept), 409,
                 "node node-a, where it was last known to run");
  EXPECT_TRUE(alive(b_).empty());
  come_back(a_, "node-a");
  wait_until_none(a_);
  wait_until([&] { return cluster_.post("/v1/jobs/train/restore", kAccept).status == 202U; });
  cluster_.wait_for_event("job-restored");
  EXPECT_EQ(job()["incarnation"], 2);
}

TEST_F(ImagesTest, ForceRestoresAJobStoppedOnALostNode) {
  order("snapshot", R"({"to":"/vault"})");
  go_away(a_);
  EXPECT_EQ(cluster_.post("/v1/jobs/train/stop").json()["state"], "stopping");
  EXPECT_EQ(order("restore", R"({"accept_loss":true,"force":true})")["restored"]["incarnation"], 2);
  EXPECT_EQ(alive(b_), Incarnations{2});
  come_back(a_, "node-a");
  wait_until_none(a_);
  EXPECT_EQ(alive(b_), Incarnations{2});
}

// The policy is paused, so that nothing is done to the job. The state of its images is determined
// nevertheless.
TEST_F(ImagesTest, ImagesTakenAfterAFaultAreSuspectAndNotTheDefault) {
  order("snapshot", R"({"to":"/vault"})");
  ASSERT_EQ(cluster_.post("/v1/policy/pause", R"({"node":"node-a"})").status, 200U);
  wire::HealthReport report;
  wire::HealthFinding& finding = report.findings.emplace_back();
  finding.number = 1;
  finding.time_ms = wall_clock_ms();
  finding.source = "nvml";
  finding.xid = 79;
  finding.outcome = wire::HealthOutcome::kRestore;
  finding.reason = "the GPU has fallen off the bus";
  a_.agent->report_health(report);
  a_.agent->wait_for_settings(1, true);
  order("snapshot", R"({"to":"/vault"})");
  restart_coordinator();
  cluster_.wait_for_event("node-ready", 4);
  const json images = cluster_.get("/v1/images").json();
  ASSERT_EQ(images.size(), 2U) << images;
  for (const json& image : images)
    EXPECT_EQ(image["suspect"], image["version"] == 2 ? json("the GPU has fallen off the bus") : json())
        << image;
  EXPECT_EQ(cluster_.get("/v1/jobs/train").json()["last_snapshot"]["suspect"],
            "the GPU has fallen off the bus");
  expect_refused(cluster_.post("/v1/jobs/train/suspend"), 409, "its memory must no longer be read");
  order("snapshot", R"({"to":"/vault"})");
  order("snapshot", R"({"to":"/vault"})");
  EXPECT_EQ(a_.checkpoint_store->kept, 2U + 3U) << "suspect images push no good one out";
  const json plan = cluster_.post("/v1/jobs/train/restore", R"({"accept_loss":true,"dry_run":true})").json();
  EXPECT_EQ(plan["image"], "j1.v1@/vault") << plan;
  const json named = order("restore", R"({"accept_loss":true,"image":"j1.v4@/vault","to":"node-b"})");
  EXPECT_EQ(named["restored"]["suspect"], "the GPU has fallen off the bus") << named;
  order("snapshot", R"({"to":"/vault"})");  // what it goes on from was suspect
  const json good = order("restore", kAccept);
  EXPECT_EQ(good["restored"]["image"], "j1.v1@/vault") << good;
  EXPECT_EQ(good["restored"]["suspect"], nullptr) << good;
  order("snapshot", R"({"to":"/vault"})");
  EXPECT_EQ(order("restore", kAccept)["restored"]["image"], "j1.v6@/vault");
}

// The job's node reports no instance, although it is carrying out the order to start one.
TEST_F(ImagesTest, NoInstanceStartsWhileAStoppedStartIsInProgress) {
  order("snapshot", R"({"to":"/vault"})");
  b_.checkpoint_store->hold_restores = true;
  ASSERT_EQ(cluster_.post("/v1/jobs/train/restore", R"({"accept_loss":true,"to":"node-b"})").status, 202U);
  wait_for_restores(b_, 1);
  b_.agent->post([this] { b_.agent->silent_stops = true; });
  EXPECT_EQ(cluster_.post("/v1/jobs/train/stop").json()["state"], "exited");
  ASSERT_EQ(cluster_.post("/v1/jobs/train/restore", R"({"accept_loss":true,"to":"node-a"})").status, 202U);
  wait_until([&] { return b_.agent->stops >= 1; });
  EXPECT_EQ(job()["state"], "restoring");
  EXPECT_EQ(a_.checkpoint_store->restores, 0U);
  b_.agent->post([this] {
    b_.agent->silent_stops = false;
    b_.checkpoint_store->give_up_restores();
    b_.agent->answer_stops();
  });
  cluster_.wait_for_event("job-restored");
  EXPECT_EQ(alive(a_), Incarnations{3});
  EXPECT_TRUE(alive(b_).empty());
}

TEST_F(ImagesTest, RestoreAfterAStoppedStartOnALostNodeRequiresForce) {
  order("snapshot", R"({"to":"/vault"})");
  b_.checkpoint_store->hold_restores = true;
  ASSERT_EQ(cluster_.post("/v1/jobs/train/restore", R"({"accept_loss":true,"to":"node-b"})").status, 202U);
  wait_for_restores(b_, 1);
  go_away(b_);
  EXPECT_EQ(cluster_.post("/v1/jobs/train/stop").json()["state"], "exited");
  expect_refused(cluster_.post("/v1/jobs/train/restore", kAccept), 409, "may still run on node node-b");
}

TEST_F(ImagesTest, JobStoppedDuringAPendingRestoreMayStillRunOnItsNode) {
  order("snapshot", R"({"to":"/vault"})");
  a_.agent->post([this] { a_.agent->ignore_stops = true; });
  ASSERT_EQ(cluster_.post("/v1/jobs/train/restore", R"({"accept_loss":true,"to":"node-b"})").status, 202U);
  go_away(a_);
  EXPECT_EQ(cluster_.post("/v1/jobs/train/stop").status, 202U);
  wait_until([&] { return job()["state"] == "exited"; });
  expect_refused(cluster_.post("/v1/jobs/train/restore", kAccept), 409, "may still run on node node-a");
  EXPECT_EQ(b_.checkpoint_store->restores, 0U);
}

TEST_F(ImagesTest, LogOfALostNodeIsSkipped) {
  a_.agent->post([this] { a_.agent->log = "at a\n"; });
  b_.agent->post([this] { b_.agent->log = "at b\n"; });
  order("snapshot", R"({"to":"/vault"})");
  go_away(a_);
  order("restore", R"({"accept_loss":true,"force":true})");
  const auto log = cluster_.get("/v1/jobs/train/logs");
  EXPECT_EQ(log.body, "at b\n");
  EXPECT_EQ(log.headers.at("X-Missing"), "node-a");
}

TEST_F(ImagesTest, LogsAreReadInNodeOrder) {
  a_.agent->post([this] { a_.agent->log = "at a\n"; });
  b_.agent->post([this] { b_.agent->log = "at b\n"; });
  order("snapshot", R"({"to":"/vault"})");
  order("restore", R"({"accept_loss":true,"to":"node-b"})");
  EXPECT_EQ(cluster_.get("/v1/jobs/train/logs").body, "at a\n");
  EXPECT_EQ(cluster_.get("/v1/jobs/train/logs?offset=5").body, "at b\n");
}

TEST_F(ImagesTest, ALostJobIsRestored) {
  order("snapshot", R"({"to":"/vault"})");
  go_away(a_);
  a_.agent->inventory.jobs.clear();
  come_back(a_, "node-a");
  cluster_.wait_for_event("job-lost");
  EXPECT_EQ(order("restore", kAccept)["restored"]["incarnation"], 2);
  EXPECT_EQ(job()["state"], "running");
}

// Expects that the report names the used image, not the requested one, and the work lost since the used
// image.
void expect_the_older(const json& restored) {
  EXPECT_EQ(restored["image"], "j1.v1@node-a") << restored;
  EXPECT_GE(restored["lost_ms"].get<std::int64_t>(), 60'000);
  const auto note = restored["note"].get<std::string>();
  EXPECT_NE(note.find("j1.v2@node-a is damaged"), std::string::npos) << note;
  EXPECT_NE(note.find("half of a pack is gone"), std::string::npos) << note;
}

TEST_F(ImagesTest, RestoreOfADamagedImageFallsBackAndReportsTheDamage) {
  a_.checkpoint_store->age_ms = 60'000;
  order("snapshot");
  a_.checkpoint_store->age_ms = 0;
  order("snapshot");
  a_.checkpoint_store->finds_damage = true;
  const json task = order("restore", kAccept);
  EXPECT_EQ(task["exit_code"], 3);
  expect_the_older(task["restored"]);
  cluster_.wait_for_event("image-damaged");
  const std::string event = text_of("job-restored");
  EXPECT_NE(event.find("from j1.v1@node-a"), std::string::npos) << event;
}

// A parked job has lost nothing, until its last image turns out to be damaged.
TEST_F(ImagesTest, ResumeFromADamagedImageReportsTheLoss) {
  a_.checkpoint_store->age_ms = 60'000;
  order("snapshot");
  a_.checkpoint_store->age_ms = 0;
  order("suspend");
  a_.checkpoint_store->finds_damage = true;
  const json task = order("resume");
  EXPECT_EQ(task["exit_code"], 3);
  expect_the_older(task["restored"]);
}

// Neither the answer nor the report was received. When the order is repeated, the node reports the image of
// the instance and starts nothing.
TEST_F(ImagesTest, OlderImageOfARestoreIsKnownAfterACoordinatorRestart) {
  a_.checkpoint_store->age_ms = 60'000;
  order("snapshot");
  a_.checkpoint_store->age_ms = 0;
  order("snapshot");
  a_.checkpoint_store->finds_damage = true;
  a_.checkpoint_store->lose_restored = true;
  ASSERT_EQ(cluster_.post("/v1/jobs/train/restore", kAccept).status, 202U);
  wait_for_restores(a_, 1);
  cluster_.stop();
  a_.checkpoint_store->lose_restored = false;
  cluster_.start();
  cluster_.wait_for_event("job-restored");
  EXPECT_EQ(a_.checkpoint_store->restores, 1U);
  const std::string event = text_of("job-restored");
  EXPECT_NE(event.find("from j1.v1@node-a"), std::string::npos) << event;
}

TEST_F(ImagesTest, JobWithAFailedRestoreStaysParked) {
  order("snapshot");
  a_.checkpoint_store->refuse_restores = true;
  const json task = order("restore", kAccept);
  EXPECT_EQ(task["exit_code"], 1);
  EXPECT_EQ(job()["state"], "parked");
  EXPECT_NE(job()["reason"].get<std::string>().find("lacks tensor w1"), std::string::npos);
  a_.checkpoint_store->refuse_restores = false;
  EXPECT_EQ(order("resume")["restored"]["incarnation"], 3);  // no incarnation is used twice
  EXPECT_EQ(alive(a_), Incarnations{3});
}

TEST_F(ImagesTest, CoordinatorRestartDuringTheEndOfTheOldInstanceDoesNotInterruptARestore) {
  order("snapshot", R"({"to":"/vault"})");
  a_.agent->post([this] { a_.agent->ignore_stops = true; });
  ASSERT_EQ(cluster_.post("/v1/jobs/train/restore", R"({"accept_loss":true,"to":"node-b"})").status, 202U);
  restart_coordinator();
  cluster_.wait_for_event("node-ready", 4);
  EXPECT_EQ(job()["state"], "restoring");
  EXPECT_EQ(b_.checkpoint_store->restores, 0U);
  a_.agent->post([this] { a_.agent->ignore_stops = false; });
  cluster_.wait_for_event("job-restored");
  EXPECT_TRUE(alive(a_).empty());
  EXPECT_EQ(alive(b_), Incarnations{2});
}

TEST_F(ImagesTest, CoordinatorRestartDuringTheStartOfTheNewInstanceDoesNotInterruptARestore) {
  order("snapshot", R"({"to":"/vault"})");
  b_.checkpoint_store->hold_restores = true;
  ASSERT_EQ(cluster_.post("/v1/jobs/train/restore", R"({"accept_loss":true,"to":"node-b"})").status, 202U);
  wait_for_restores(b_, 1);
  b_.checkpoint_store->hold_restores = false;
  restart_coordinator();
  cluster_.wait_for_event("job-restored");
  EXPECT_TRUE(alive(a_).empty());
  EXPECT_EQ(alive(b_), Incarnations{2});
  EXPECT_EQ(job()["state"], "running");
}

TEST_F(ImagesTest, CoordinatorRestartAfterTheStartOfTheNewInstanceDoesNotInterruptARestore) {
  order("snapshot", R"({"to":"/vault"})");
  b_.checkpoint_store->hold_restores = true;
  ASSERT_EQ(cluster_.post("/v1/jobs/train/restore", R"({"accept_loss":true,"to":"node-b"})").status, 202U);
  wait_for_restores(b_, 1);
  cluster_.stop();
  std::promise<void> changed;
  b_.agent->post([&] {
    b_.agent->change(1, 2, JobPhase::kRunning);
    changed.set_value();
  });
  changed.get_future().wait();
  cluster_.start();
  cluster_.wait_for_event("job-restored");
  EXPECT_EQ(b_.checkpoint_store->restores, 1U);  // the image is not restored again
  EXPECT_EQ(alive(b_), Incarnations{2});
}

}  // namespace
}  // namespace ckpt::coordinator::test
