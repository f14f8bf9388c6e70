// SPDX-License-Identifier: Apache-2.0
// Tests of snapshots and suspends, and of the later use and removal of images.
#include "tests/unit/coordinator/images/images_fixture.h"

namespace ckpt::coordinator::test {
namespace {

TEST_F(ImagesTest, ASnapshotIsListedWithItsFacts) {
  const json task = order("snapshot");
  EXPECT_EQ(task["exit_code"], 0) << task;
  EXPECT_EQ(task["image"], "j1.v1@node-a");
  EXPECT_EQ(task["report"]["pause_ms"], 3.0);
  const json images = cluster_.get("/v1/images").json();
  ASSERT_EQ(images.size(), 1U);
  EXPECT_EQ(images[0]["id"], "j1.v1@node-a");
  EXPECT_EQ(images[0]["pause_ms"], 3.0);
  EXPECT_EQ(images[0]["new_bytes"], 1 << 18);
  EXPECT_TRUE(images[0]["readable"].get<bool>());
  EXPECT_EQ(job()["last_snapshot"]["image"], "j1.v1@node-a");
  restart_coordinator();
  cluster_.wait_for_event("node-ready", 4);
  EXPECT_EQ(cluster_.get("/v1/images").json()[0]["pause_ms"], 3.0);
}

TEST_F(ImagesTest, ImagesAreReadPageByPage) {
  for (int i = 0; i < 3; ++i) order("snapshot");
  const json first = cluster_.get("/v1/images?limit=2").json();
  ASSERT_EQ(first["images"].size(), 2U);
  EXPECT_EQ(first["images"][1]["id"], "j1.v2@node-a");
  EXPECT_EQ(cluster_.post("/v1/images/j1.v2@node-a/remove").status, 200U);
  const json rest = cluster_.get("/v1/images?limit=2&after=" + first["next"].get<std::string>()).json();
  ASSERT_EQ(rest["images"].size(), 1U);
  EXPECT_EQ(rest["images"][0]["id"], "j1.v3@node-a");
  EXPECT_EQ(rest["next"], nullptr);
  EXPECT_EQ(cluster_.get("/v1/images").json().size(), 2U) << "without a limit it is the whole list";
  EXPECT_EQ(cluster_.get("/v1/images?limit=2&after=j1.v2@node-a").status, 400U);
  EXPECT_EQ(cluster_.get("/v1/images?limit=1001").status, 400U);
}

TEST_F(ImagesTest, AnUnmeasuredPauseIsNotUsedAsAForecast) {
  a_.checkpoint_store->pause_ns = 0;
  EXPECT_EQ(order("snapshot")["exit_code"], 0);
  const auto plan = [this] {
    return cluster_.post("/v1/jobs/train/protect", R"({"every_ms":1000,"dry_run":true})").json();
  };
  EXPECT_EQ(plan()["expected_pause_ms"], nullptr) << plan();
  a_.checkpoint_store->pause_ns = 7'000'000;
  EXPECT_EQ(order("snapshot")["exit_code"], 0);
  EXPECT_EQ(plan()["expected_pause_ms"], 7.0) << plan();
}

TEST_F(ImagesTest, AFailedSnapshotLeavesTheJobRunning) {
  a_.checkpoint_store->refuse_snapshots = true;
  const json task = order("snapshot");
  EXPECT_EQ(task["exit_code"], 1);
  EXPECT_NE(task["error"].get<std::string>().find("The disk is full"), std::string::npos);
  EXPECT_EQ(job()["state"], "running");
  cluster_.wait_for_event("snapshot-failed");
}

TEST_F(ImagesTest, SnapshotToAnUnknownNodeOrInvalidPathIsRefused) {
  expect_refused(cluster_.post("/v1/jobs/train/snapshot", R"({"to":"nowhere"})"), 404, "no node");
  expect_refused(cluster_.post("/v1/jobs/train/snapshot", R"({"to":"/vault/../etc"})"), 400, "absolute path");
  EXPECT_EQ(order("snapshot", R"({"to":"/vault"})")["image"], "j1.v1@/vault");
}

TEST_F(ImagesTest, NoMoveStartsDuringASuspend) {
  a_.checkpoint_store->hold_snapshots = true;
  ASSERT_EQ(cluster_.post("/v1/jobs/train/suspend").status, 202U);
  const auto plan = cluster_.post("/v1/jobs/train/migrate", R"({"dry_run":true})").json();
  EXPECT_FALSE(plan["possible"].get<bool>());
  EXPECT_NE(plan["reason"].get<std::string>().find("suspending"), std::string::npos) << plan;
}

TEST_F(ImagesTest, DryRunOfAMoveQueriesTheNodeOfTheJob) {
  const std::string body = R"({"to":"node-b","dry_run":true})";
  EXPECT_TRUE(cluster_.post("/v1/jobs/train/migrate", body).json()["possible"].get<bool>());
  std::promise<void> refuses;
  a_.agent->post([&] {
    a_.agent->refuse_moves = true;
    refuses.set_value();
  });
  refuses.get_future().wait();
  const json plan = cluster_.post("/v1/jobs/train/migrate", body).json();
  EXPECT_FALSE(plan["possible"].get<bool>()) << plan;
  EXPECT_NE(plan["reason"].get<std::string>().find("Descriptor 3 is a pipe"), std::string::npos) << plan;
}

TEST_F(ImagesTest, SuspendParksAJobAndResumeRestoresTheJob) {
  const json task = order("suspend");
  EXPECT_EQ(task["exit_code"], 0) << task;
  EXPECT_EQ(task["image"], "j1.v1@node-a");
  EXPECT_TRUE(alive(a_).empty());
  EXPECT_EQ(job()["state"], "parked");
  EXPECT_TRUE(job()["node"].is_null());
  EXPECT_TRUE(job()["exit_code"].is_null());
  EXPECT_EQ(cluster_.get("/v1/gpus").json()[0]["jobs"], json::array());
  EXPECT_EQ(cluster_.get("/v1/jobs/train/wait?timeout_ms=0").json()["state"], "parked");
  const json resumed = order("resume");
  EXPECT_EQ(resumed["exit_code"], 0) << resumed;
  EXPECT_EQ(resumed["restored"]["lost_ms"], 0);
  EXPECT_EQ(alive(a_), Incarnations{2});
  EXPECT_EQ(job()["state"], "running");
  expect_refused(cluster_.post("/v1/jobs/train/resume"), 409, "not parked");
}

TEST_F(ImagesTest, AFailedSuspendLeavesTheJobRunning) {
  a_.checkpoint_store->refuse_snapshots = true;
  EXPECT_EQ(order("suspend")["exit_code"], 1);
  EXPECT_EQ(job()["state"], "running");
  EXPECT_EQ(alive(a_), Incarnations{1});
}

// A restarted coordinator orders the snapshot again. Meanwhile the job leaves for the image of the earlier
// order.
TEST_F(ImagesTest, SuspendCompletesWithTheImageOfAnEarlierOrder) {
  a_.checkpoint_store->ended_before = true;
  const json task = order("suspend");
  EXPECT_EQ(task["exit_code"], 0) << task;
  EXPECT_EQ(job()["state"], "parked");
  a_.checkpoint_store->ended_before = false;
  EXPECT_EQ(order("resume")["restored"]["lost_ms"], 0);
}

TEST_F(ImagesTest, StopDuringTheLastSnapshotEndsTheJob) {
  a_.checkpoint_store->hold_snapshots = true;
  a_.checkpoint_store->ignore_cancels = true;
  const json suspend = cluster_.post("/v1/jobs/train/suspend").json();
  wait_for_snapshots(a_, 1);
  ASSERT_EQ(cluster_.post("/v1/jobs/train/stop").status, 202U);
  a_.checkpoint_store->release_snapshots();
  EXPECT_EQ(finished(suspend)["exit_code"], 2);
  wait_until([this] { return job()["state"] == "exited"; });
  EXPECT_EQ(job()["exit_code"], 143);
}

TEST_F(ImagesTest, JobWithAMissingLastImageIsLost) {
  a_.checkpoint_store->hold_snapshots = true;
  const json suspend = cluster_.post("/v1/jobs/train/suspend").json();
  wait_for_snapshots(a_, 1);
  a_.agent->post([this] { a_.agent->change(1, 1, JobPhase::kMoved); });
  a_.checkpoint_store->refuse_snapshots = true;
  a_.checkpoint_store->release_snapshots();
  EXPECT_EQ(finished(suspend)["exit_code"], 1);
  wait_until([this] { return job()["state"] == "lost"; });
}

TEST_F(ImagesTest, SuspendEndsIfTheJobExitsFirst) {
  a_.checkpoint_store->hold_snapshots = true;
  const json suspend = cluster_.post("/v1/jobs/train/suspend").json();
  wait_for_snapshots(a_, 1);
  a_.agent->end_job(1, 0);
  a_.checkpoint_store->refuse_snapshots = true;
  a_.checkpoint_store->release_snapshots();
  EXPECT_EQ(finished(suspend)["exit_code"], 1);
  wait_until([this] { return job()["state"] == "exited"; });
}

TEST_F(ImagesTest, AParkedJobCanBeStopped) {
  order("suspend");
  EXPECT_EQ(cluster_.post("/v1/jobs/train/stop").json()["state"], "exited");
  EXPECT_EQ(job()["exit_code"], 143);
}

TEST_F(ImagesTest, ImageOfAParkedJobIsRemovedOnlyByForce) {
  order("snapshot");
  order("suspend");
  expect_refused(cluster_.post("/v1/images/j1.v2@node-a/remove"), 409, "is parked in");
  EXPECT_EQ(cluster_.post("/v1/images/j1.v1@node-a/remove").status, 200U);
  EXPECT_EQ(cluster_.get("/v1/images").json().size(), 1U);
  EXPECT_EQ(cluster_.post("/v1/images/j1.v2@node-a/remove", R"({"force":true})").status, 200U);
  expect_refused(cluster_.post("/v1/jobs/train/resume"), 404, "no image");
}

// ---- a snapshot during a move ----

TEST_F(ImagesTest, SnapshotThatYieldsIsReportedAsFailed) {
  a_.checkpoint_store->gives_way = true;
  const json task = order("snapshot");
  EXPECT_EQ(task["exit_code"], 1) << task;
  EXPECT_NE(task["error"].get<std::string>().find("gave way"), std::string::npos) << task;
  EXPECT_EQ(job()["state"], "running");
}

TEST_F(ImagesTest, MigrateStartsWhileASnapshotPausesTheJob) {
  a_.checkpoint_store->hold_snapshots = true;
  ASSERT_EQ(cluster_.post("/v1/jobs/train/snapshot").status, 202U);
  wait_for_snapshots(a_, 1);
  a_.agent->post([this] { a_.agent->change(1, 1, JobPhase::kPaused); });
  wait_until([this] { return job()["state"] == "paused"; });
  const auto begun = cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b"})");
  EXPECT_EQ(begun.status, 202U) << begun.body;
}

// The job's migration is closed, and its node reports a moment later that the job continues.
TEST_F(ImagesTest, SnapshotWaitsForAPausedJobToContinue) {
  a_.agent->post([this] { a_.agent->change(1, 1, JobPhase::kPaused); });
  wait_until([this] { return job()["state"] == "paused"; });
  auto ordered = std::async(std::launch::async, [this] { return order("snapshot"); });
  for (int looks = 0; looks < 100; ++looks) EXPECT_EQ(job()["state"], "paused");
  a_.agent->run_jobs();
  const json task = ordered.get();
  EXPECT_EQ(task["exit_code"], 0) << task;
}

TEST_F(ImagesTest, SnapshotOfAJobThatMovedMeanwhileReportsItsImage) {
  a_.checkpoint_store->hold_snapshots = true;
  const auto begun = cluster_.post("/v1/jobs/train/snapshot");
  wait_for_snapshots(a_, 1);
  ASSERT_EQ(cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b"})").status, 202U);
  wait_until([this] { return job()["node"] == "node-b" && job()["state"] == "running"; });
  a_.checkpoint_store->release_snapshots();
  const json task = finished(begun.json());
  EXPECT_EQ(task["exit_code"], 0) << task;
  EXPECT_EQ(task["image"], "j1.v1@node-a");
}

// ---- cancelling operations into an image ----

class SuspendedFarAway : public ImagesTest {
 protected:
  // Suspends the job into the checkpoint store of a node that does not serve the checkpoint store.
  void SetUp() override {
    ImagesTest::SetUp();
    b_.checkpoint_store->refuse_grants = true;
    const auto begun = cluster_.post("/v1/jobs/train/suspend", R"({"to":"node-b"})");
    ASSERT_EQ(begun.status, 202U) << begun.body;
    suspend_ = begun.json();
  }
  json suspend_;
};

TEST_F(SuspendedFarAway, StopCancelsTheSuspend) {
  const auto stopped = cluster_.post("/v1/jobs/train/stop");
  ASSERT_EQ(stopped.status, 202U) << stopped.body;
  cluster_.wait_for_event("job-ended");
  EXPECT_EQ(job()["state"], "exited");
  EXPECT_TRUE(alive(a_).empty());
  EXPECT_EQ(finished(suspend_)["exit_code"], 2);
}

TEST_F(SuspendedFarAway, MigrateCancelsTheSuspend) {
  const auto begun = cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b"})");
  EXPECT_EQ(begun.status, 202U) << begun.body;
  EXPECT_EQ(finished(suspend_)["exit_code"], 2);
  wait_until([this] { return job()["node"] == "node-b" && job()["state"] == "running"; });
}

TEST_F(SuspendedFarAway, DrainCancelsASuspendThatIsInProgress) {
  const auto begun = cluster_.post("/v1/drains", R"({"place":"node-a"})");
  EXPECT_EQ(begun.status / 100, 2U) << begun.body;
  cluster_.wait_for_event("drain-ended");
  EXPECT_EQ(job()["node"], "node-b");
  EXPECT_EQ(finished(suspend_)["exit_code"], 2);
}

TEST_F(ImagesTest, MigrateCancelsTheSnapshotOfASuspend) {
  a_.checkpoint_store->hold_snapshots = true;
  const json suspend = cluster_.post("/v1/jobs/train/suspend").json();
  wait_for_snapshots(a_, 1);
  const json operation = job()["operation"];
  EXPECT_EQ(operation["verb"], "suspend");
  EXPECT_EQ(operation["stage"], "taking");
  EXPECT_FALSE(operation["deadline"].is_null());
  const auto begun = cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b"})");
  EXPECT_EQ(begun.status, 202U) << begun.body;
  EXPECT_EQ(finished(suspend)["exit_code"], 2);
}

TEST_F(ImagesTest, StopDuringASuspendContinuesAfterACoordinatorRestart) {
  a_.checkpoint_store->hold_snapshots = true;
  ASSERT_EQ(cluster_.post("/v1/jobs/train/suspend").status, 202U);
  wait_for_snapshots(a_, 1);
  a_.checkpoint_store->ignore_cancels = true;
  ASSERT_EQ(cluster_.post("/v1/jobs/train/stop").status, 202U);
  cluster_.stop();
  a_.agent->stop();
  cluster_.start();
  cluster_.wait_for_event("snapshot-failed");
  // The job's node is still disconnected. The stop is pending for that node, and the job has no end that was
  // not observed.
  const json owed = job();
  EXPECT_EQ(owed["state"], "stopping") << owed;
  EXPECT_EQ(owed["silent_node"], "node-a") << owed;
  come_back(a_, "node-a");
  wait_until([this] { return job()["state"] == "exited"; });
  EXPECT_TRUE(alive(a_).empty());
  EXPECT_EQ(cluster_.get("/v1/images").json().size(), 0U);
}

TEST_F(ImagesTest, ForcedRestoreCancelsASuspend) {
  order("snapshot", R"({"to":"/vault"})");
  a_.checkpoint_store->hold_snapshots = true;
  const json suspend = cluster_.post("/v1/jobs/train/suspend").json();
  wait_for_snapshots(a_, 2);
  expect_refused(cluster_.post("/v1/jobs/train/restore"), 409, "suspending");
  const json task = order("restore", R"({"accept_loss":true,"force":true,"to":"node-b"})");
  EXPECT_EQ(task["restored"]["at"], "node-b:0") << task;
  EXPECT_EQ(finished(suspend)["exit_code"], 2);
  EXPECT_TRUE(alive(a_).empty());
}

TEST_F(ImagesTest, StopDuringAResumeEndsTheJobEvenIfItsNodeDoesNotAnswer) {
  order("suspend", R"({"to":"/vault"})");
  b_.checkpoint_store->hold_restores = true;
  const json resume = cluster_.post("/v1/jobs/train/resume", R"({"to":"node-b"})").json();
  wait_for_restores(b_, 1);
  ASSERT_EQ(cluster_.post("/v1/jobs/train/stop").status, 202U);
  cluster_.wait_for_event("job-ended");
  EXPECT_EQ(job()["state"], "exited");
  EXPECT_EQ(finished(resume)["exit_code"], 2);
}

class CheckpointStoreAwayForLong : public SuspendedFarAway {
 protected:
  void SetUp() override {
    cluster_.config().checkpoint_store_timeout_ms = 100;
    SuspendedFarAway::SetUp();
  }
};

TEST_F(CheckpointStoreAwayForLong, SuspendFailsAndTheJobContinues) {
  const json task = finished(suspend_);
  EXPECT_EQ(task["exit_code"], 2) << task;
  EXPECT_NE(task["error"].get<std::string>().find("did not answer"), std::string::npos) << task;
  EXPECT_EQ(job()["state"], "running");
  EXPECT_EQ(alive(a_), Incarnations{1});
}

class ShortOfTime : public ImagesTest {
 protected:
  void SetUp() override {
    cluster_.config().image_timeout_ms = 200;
    ImagesTest::SetUp();
  }
};

TEST_F(ShortOfTime, SuspendThatTimesOutIsAbandonedAndTheJobContinues) {
  a_.checkpoint_store->hold_snapshots = true;
  EXPECT_EQ(order("suspend")["exit_code"], 2);
  EXPECT_EQ(job()["state"], "running");
  EXPECT_EQ(alive(a_), Incarnations{1});
}

TEST_F(ShortOfTime, ParkingAJobDoesNotWaitForADisconnectedNode) {
  a_.checkpoint_store->lose_answers = true;
  a_.checkpoint_store->hold_lists = true;
  const json suspend = cluster_.post("/v1/jobs/train/suspend").json();
  EXPECT_EQ(finished(suspend)["exit_code"], 6);
  EXPECT_EQ(job()["state"], "suspending");
}

// ---- which image is the newest, and which images are removed ----

TEST_F(ImagesTest, LastOrderedImageIsTheNewestDespiteAFastClock) {
  a_.checkpoint_store->age_ms = -60'000;
  order("snapshot");
  a_.checkpoint_store->age_ms = 0;
  order("snapshot", R"({"to":"node-b"})");
  EXPECT_EQ(ask_newest(), "node-b");
  const json images = cluster_.get("/v1/images").json();
  EXPECT_LT(images[0]["sequence"], images[1]["sequence"]) << images;
  restart_coordinator();
  a_.checkpoint_store->age_ms = 60'000;
  cluster_.wait_for_event("node-ready", 4);
  order("snapshot");
  EXPECT_EQ(ask_newest(), "node-a");
}

class ImagesForAMoment : public ImagesTest {
 protected:
  void SetUp() override {
    cluster_.config().ended_images_max_age_ms = 100;
    ImagesTest::SetUp();
  }
};

TEST_F(ImagesForAMoment, ImagesOfEndedJobsAreRemoved) {
  order("snapshot");
  order("snapshot", R"({"to":"node-b"})");
  a_.agent->end_job(1, 0);
  cluster_.wait_for_event("images-collected");
  wait_until([this] { return cluster_.get("/v1/images").json().empty(); });
}

// ---- requests of the rest of the coordinator ----

TEST_F(ImagesTest, JobParkedByTheSystemResumesWhenMemoryIsFree) {
  a_.agent->set_free(0);
  b_.agent->set_free(0);
  const auto parked =
      ask_images<void>([](Images& images) { return images.park(1, true, "its room is needed"); });
  ASSERT_TRUE(parked) << parked.error().to_string();
  EXPECT_EQ(job()["state"], "parked");
  EXPECT_EQ(job()["reason"], "its room is needed");
  a_.agent->set_free(std::uint64_t{8} << 30);
  cluster_.wait_for_event("job-resumed");
  EXPECT_EQ(alive(a_), Incarnations{2});
}

TEST_F(ImagesTest, ParkingWithoutAnImageIsRefused) {
  const auto parked = ask_images<void>([](Images& images) { return images.park(1, false, "x"); });
  ASSERT_FALSE(parked);
  EXPECT_EQ(parked.error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(alive(a_), Incarnations{1});
}

TEST_F(ImagesTest, ParkingInAnOldImageEndsTheInstance) {
  order("snapshot");
  a_.agent->set_free(0);
  b_.agent->set_free(0);
  const auto parked = ask_images<void>([](Images& images) { return images.park(1, false, "GPU 0 fails"); });
  ASSERT_TRUE(parked) << parked.error().to_string();
  EXPECT_TRUE(alive(a_).empty());
  EXPECT_EQ(job()["state"], "parked");
}

TEST_F(ImagesTest, NewestImageIsChosenFromReadableCheckpointStores) {
  order("snapshot");
  EXPECT_EQ(ask_newest(), "node-a");
  go_away(a_);
  EXPECT_EQ(ask_newest(), "");
  const auto restored =
      ask_images<Restored>([](Images& images) { return images.restore(1, std::nullopt, "x"); });
  ASSERT_FALSE(restored);
  EXPECT_EQ(restored.error().code(), ErrorCode::kRefused);  // the instance may be alive
}

// ---- the coordinator is killed at each record ----

TEST_F(ImagesTest, CoordinatorRestartDuringTheLastSnapshotDoesNotInterruptASuspend) {
  a_.checkpoint_store->hold_snapshots = true;
  ASSERT_EQ(cluster_.post("/v1/jobs/train/suspend").status, 202U);
  wait_for_snapshots(a_, 1);
  a_.checkpoint_store->hold_snapshots = false;
  restart_coordinator();
  cluster_.wait_for_event("job-parked");
  EXPECT_EQ(a_.checkpoint_store->snapshots, 2U);
  EXPECT_EQ(job()["state"], "parked");
}

TEST_F(ImagesTest, CoordinatorRestartAfterTheLastSnapshotDoesNotInterruptASuspend) {
  a_.checkpoint_store->lose_answers = true;
  ASSERT_EQ(cluster_.post("/v1/jobs/train/suspend").status, 202U);
  wait_for_snapshots(a_, 1);
  restart_coordinator();
  cluster_.wait_for_event("job-parked");
  EXPECT_EQ(a_.checkpoint_store->snapshots, 1U);
  EXPECT_EQ(job()["state"], "parked");
  EXPECT_EQ(order("resume")["restored"]["lost_ms"], 0);
}

TEST_F(ImagesTest, AJobThatExitsDuringASuspendIsReportedAsExited) {
  a_.checkpoint_store->hold_snapshots = true;
  ASSERT_EQ(cluster_.post("/v1/jobs/train/suspend").status, 202U);
  wait_for_snapshots(a_, 1);
  cluster_.stop();
  a_.agent->end_job(1, 7);
  cluster_.start();
  cluster_.wait_for_event("job-ended");
  EXPECT_EQ(job()["state"], "exited");
  EXPECT_EQ(job()["exit_code"], 7);
}

// ---- protection ----

}  // namespace
}  // namespace ckpt::coordinator::test
