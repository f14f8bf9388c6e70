// SPDX-License-Identifier: Apache-2.0
// Images over a real coordinator, with agents and vaults that speak the messages and do nothing.
#include "coordinator/images/images.h"

#include <gtest/gtest.h>

#include <future>

#include "libckpt/net/control/spawn.h"
#include "libckpt/protocol/wire/node_messages.h"
#include "tests/unit/coordinator/support/cluster.h"
#include "tests/unit/coordinator/support/fake_vault.h"

namespace ckpt::coordinator::test {
namespace {

using nlohmann::json;
using wire::JobPhase;

constexpr auto kAccept = R"({"accept_loss":true})";

class ImagesTest : public ::testing::Test {
 protected:
  struct TestNode {
    std::unique_ptr<FakeAgent> agent;
    std::unique_ptr<FakeVault> vault;
  };
  void SetUp() override {
    cluster_.start();
    a_ = node("node-a");
    b_ = node("node-b");
    a_.agent->start();
    b_.agent->start();
    cluster_.wait_for_event("node-ready", 2);
    const auto answer =
        cluster_.post("/v1/jobs", R"({"argv":["./train"],"cwd":"/tmp","node":"node-a","name":"train"})");
    ASSERT_EQ(answer.status, 201U) << answer.body;
  }
  void TearDown() override {
    for (TestNode* n : {&a_, &b_}) n->agent.reset();
  }
  TestNode node(const std::string& name, wire::NodeInventory* known = nullptr) {
    TestNode made;
    made.agent = std::make_unique<FakeAgent>(name, cluster_.agent_address(), cluster_.agent_token());
    if (known != nullptr) made.agent->inventory = *known;
    made.vault = std::make_unique<FakeVault>(*made.agent, name, shared_);
    return made;
  }
  // The node goes away; come_back() brings it back with its state.
  void go_away(TestNode& gone) {
    gone.agent->stop();
    cluster_.wait_for_event("node-lost");
  }
  void come_back(TestNode& gone, const std::string& name) {
    wire::NodeInventory known = gone.agent->inventory;
    gone = node(name, &known);
    gone.agent->start();
  }
  void restart_coordinator() {
    cluster_.stop();
    cluster_.start();
  }

  json job() { return cluster_.get("/v1/jobs/train").json(); }
  // Orders it and waits for its end.
  json order(const std::string& verb, const std::string& body = "{}") {
    const auto begun = cluster_.post("/v1/jobs/train/" + verb, body);
    EXPECT_EQ(begun.status, 202U) << begun.body;
    return begun.status == 202U ? finished(begun.json()) : begun.json();
  }
  json finished(json task) {
    wait_until([&] {
      if (task["open"].get<bool>()) task = cluster_.get("/v1/tasks/" + task["id"].get<std::string>()).json();
      return !task["open"].get<bool>();
    });
    return task;
  }
  void expect_refused(const HttpAnswer& answer, unsigned status, const std::string& part) {
    EXPECT_EQ(answer.status, status) << answer.body;
    EXPECT_NE(answer.body.find(part), std::string::npos) << answer.body;
  }
  // Living instances, as the agents have them. Asked on their threads.
  static std::vector<std::uint64_t> alive(TestNode& n) {
    std::promise<std::vector<std::uint64_t>> found;
    n.agent->post([&] {
      std::vector<std::uint64_t> list;
      for (const wire::JobInstance& instance : n.agent->inventory.jobs) {
        if (instance.phase != JobPhase::kExited && instance.phase != JobPhase::kMoved)
          list.push_back(instance.incarnation);
      }
      found.set_value(list);
    });
    return found.get_future().get();
  }
  // Of an agent that is stopped.
  static std::vector<std::uint64_t> alive_of(const TestNode& n) {
    std::vector<std::uint64_t> list;
    for (const wire::JobInstance& instance : n.agent->inventory.jobs) {
      if (instance.phase != JobPhase::kExited && instance.phase != JobPhase::kMoved)
        list.push_back(instance.incarnation);
    }
    return list;
  }
  // Of the last event of the kind.
  std::string text_of(const std::string& kind) {
    std::string text;
    const json answer = cluster_.get("/v1/events?since=0").json();
    for (const json& event : answer["events"])
      if (event["kind"] == kind) text = event["text"].get<std::string>();
    return text;
  }
  // Until what happens elsewhere has happened: asks again at every answer of the coordinator.
  void wait_until(const std::function<bool()>& holds) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!holds()) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "job: " << job();
      ASSERT_EQ(cluster_.get("/v1/status").status, 200U);
      std::this_thread::yield();
    }
  }
  void wait_for_snapshots(TestNode& n, unsigned count) {
    wait_until([&] { return n.vault->snapshots >= count; });
  }
  void wait_for_restores(TestNode& n, unsigned count) {
    wait_until([&] { return n.vault->restores >= count; });
  }
  void wait_until_none(TestNode& n) {
    wait_until([&] { return alive(n).empty(); });
  }
  std::string ask_newest() {
    std::string node;
    cluster_.on_io([&](Coordinator& coordinator, const auto&) {
      const auto image = coordinator.images().newest(1);
      if (image) node = image->node;
    });
    return node;
  }
  template <class T>
  Result<T> ask_images(const std::function<control::Task<Result<T>>(Images&)>& what) {
    std::promise<Result<T>> answer;
    cluster_.on_io([&](Coordinator& coordinator, control::asio::any_io_executor executor) {
      control::spawn(executor, "a test", keep<T>(what(coordinator.images()), &answer));
    });
    return answer.get_future().get();
  }
  template <class T>
  static control::Task<> keep(control::Task<Result<T>> task, std::promise<Result<T>>* answer) {
    answer->set_value(co_await std::move(task));
  }

  using Incarnations = std::vector<std::uint64_t>;
  Cluster cluster_;
  std::shared_ptr<SharedFolders> shared_ = std::make_shared<SharedFolders>();
  TestNode a_;
  TestNode b_;
};

TEST_F(ImagesTest, ASnapshotIsListedAsItWas) {
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

TEST_F(ImagesTest, ImagesAreReadByPages) {
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

TEST_F(ImagesTest, APauseOfNothingIsNoForecast) {
  a_.vault->pause_ns = 0;
  EXPECT_EQ(order("snapshot")["exit_code"], 0);
  const auto plan = [this] {
    return cluster_.post("/v1/jobs/train/protect", R"({"every_ms":1000,"dry_run":true})").json();
  };
  EXPECT_EQ(plan()["expected_pause_ms"], nullptr) << plan();
  a_.vault->pause_ns = 7'000'000;
  EXPECT_EQ(order("snapshot")["exit_code"], 0);
  EXPECT_EQ(plan()["expected_pause_ms"], 7.0) << plan();
}

TEST_F(ImagesTest, AFailedSnapshotLeavesTheJobAlone) {
  a_.vault->refuse_snapshots = true;
  const json task = order("snapshot");
  EXPECT_EQ(task["exit_code"], 1);
  EXPECT_NE(task["error"].get<std::string>().find("The disk is full"), std::string::npos);
  EXPECT_EQ(job()["state"], "running");
  cluster_.wait_for_event("snapshot-failed");
}

TEST_F(ImagesTest, SnapshotToAnUnknownNodeOrUncleanPathIsRefused) {
  expect_refused(cluster_.post("/v1/jobs/train/snapshot", R"({"to":"nowhere"})"), 404, "no node");
  expect_refused(cluster_.post("/v1/jobs/train/snapshot", R"({"to":"/vault/../etc"})"), 400, "absolute path");
  EXPECT_EQ(order("snapshot", R"({"to":"/vault"})")["image"], "j1.v1@/vault");
}

TEST_F(ImagesTest, NoMoveBeginsOnceAJobIsBeingSuspended) {
  a_.vault->hold_snapshots = true;
  ASSERT_EQ(cluster_.post("/v1/jobs/train/suspend").status, 202U);
  const auto plan = cluster_.post("/v1/jobs/train/migrate", R"({"dry_run":true})").json();
  EXPECT_FALSE(plan["possible"].get<bool>());
  EXPECT_NE(plan["reason"].get<std::string>().find("suspending"), std::string::npos) << plan;
}

TEST_F(ImagesTest, DryRunOfAMoveAsksTheJobsNode) {
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

TEST_F(ImagesTest, ARunningJobIsRolledBack) {
  a_.vault->age_ms = 5'000;
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

TEST_F(ImagesTest, RestoreOfARunningJobIsRefusedUnlessTheLossIsAccepted) {
  a_.vault->age_ms = 5'000;
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

TEST_F(ImagesTest, RestoreFromAnImageThatIsOlderThanTheLastWorkIsRefusedUnlessTheLossIsAccepted) {
  a_.vault->age_ms = 5'000;
  order("snapshot");
  a_.vault->age_ms = 0;
  order("suspend");
  const auto older = cluster_.post("/v1/jobs/train/restore", R"({"image":"j1.v1@node-a"})");
  expect_refused(older, 409, "went further than j1.v1@node-a");
  EXPECT_EQ(job()["state"], "parked");
  EXPECT_EQ(order("restore")["restored"]["lost_ms"], 0);
}

TEST_F(ImagesTest, RestoreOfAParkedJobThatWasStoppedLosesNothing) {
  a_.vault->age_ms = 5'000;
  order("suspend");
  EXPECT_EQ(cluster_.post("/v1/jobs/train/stop").json()["state"], "exited");
  restart_coordinator();
  cluster_.wait_for_event("node-ready", 4);
  const json task = order("restore");
  EXPECT_EQ(task["exit_code"], 0) << task;
  EXPECT_EQ(task["restored"]["lost_ms"], 0);
}

TEST_F(ImagesTest, NothingEndsForAnImageThatCannotBeRead) {
  order("snapshot", R"({"to":"/vault"})");
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->rows["/vault"].clear();  // it was removed by hand
  }
  expect_refused(cluster_.post("/v1/jobs/train/restore", kAccept), 503, "no whole image");
  EXPECT_EQ(alive(a_), Incarnations{1});
  EXPECT_EQ(job()["state"], "running");
}

TEST_F(ImagesTest, RestoreOfAJobOnALostNodeNeedsForceAndFencesIt) {
  order("snapshot", R"({"to":"/vault"})");
  go_away(a_);
  expect_refused(cluster_.post("/v1/jobs/train/restore"), 409, "--force");
  const json task = order("restore", R"({"accept_loss":true,"force":true})");
  EXPECT_EQ(task["restored"]["incarnation"], 2) << task;
  EXPECT_EQ(alive(b_), Incarnations{2});
  EXPECT_EQ(alive_of(a_), Incarnations{1});  // it lived on
  come_back(a_, "node-a");
  cluster_.wait_for_event("node-ready", 3);
  wait_until_none(a_);
  EXPECT_EQ(job()["node"], "node-b");
  EXPECT_EQ(job()["state"], "running");
}

TEST_F(ImagesTest, LogOfALostNodeIsSkipped) {
  a_.agent->post([this] { a_.agent->log = "at a\n"; });
  b_.agent->post([this] { b_.agent->log = "at b\n"; });
  order("snapshot", R"({"to":"/vault"})");
  go_away(a_);
  order("restore", R"({"accept_loss":true,"force":true})");
  EXPECT_EQ(cluster_.get("/v1/jobs/train/logs").body, "at b\n");
}

TEST_F(ImagesTest, LogsAreReadInTheOrderOfTheNodes) {
  a_.agent->post([this] { a_.agent->log = "at a\n"; });
  b_.agent->post([this] { b_.agent->log = "at b\n"; });
  order("snapshot", R"({"to":"/vault"})");
  order("restore", R"({"accept_loss":true,"to":"node-b"})");
  EXPECT_EQ(cluster_.get("/v1/jobs/train/logs").body, "at a\n");
  EXPECT_EQ(cluster_.get("/v1/jobs/train/logs?offset=5").body, "at b\n");
}

TEST_F(ImagesTest, ALostJobComesBack) {
  order("snapshot", R"({"to":"/vault"})");
  go_away(a_);
  a_.agent->inventory.jobs.clear();
  come_back(a_, "node-a");
  cluster_.wait_for_event("job-lost");
  EXPECT_EQ(order("restore", kAccept)["restored"]["incarnation"], 2);
  EXPECT_EQ(job()["state"], "running");
}

// The image that was used, not the one that was asked for, and the work that is lost since that one.
void expect_the_older(const json& restored) {
  EXPECT_EQ(restored["image"], "j1.v1@node-a") << restored;
  EXPECT_GE(restored["lost_ms"].get<std::int64_t>(), 60'000);
  const auto note = restored["note"].get<std::string>();
  EXPECT_NE(note.find("j1.v2@node-a is damaged"), std::string::npos) << note;
  EXPECT_NE(note.find("half of a pack is gone"), std::string::npos) << note;
}

TEST_F(ImagesTest, RestoreOfADamagedImageFallsBackAndReportsIt) {
  a_.vault->age_ms = 60'000;
  order("snapshot");
  a_.vault->age_ms = 0;
  order("snapshot");
  a_.vault->finds_damage = true;
  const json task = order("restore", kAccept);
  EXPECT_EQ(task["exit_code"], 3);
  expect_the_older(task["restored"]);
  cluster_.wait_for_event("image-damaged");
  const std::string event = text_of("job-restored");
  EXPECT_NE(event.find("from j1.v1@node-a"), std::string::npos) << event;
}

// A parked job has lost nothing, until its last image turns out to be damaged.
TEST_F(ImagesTest, ResumeFromADamagedImageReportsTheLoss) {
  a_.vault->age_ms = 60'000;
  order("snapshot");
  a_.vault->age_ms = 0;
  order("suspend");
  a_.vault->finds_damage = true;
  const json task = order("resume");
  EXPECT_EQ(task["exit_code"], 3);
  expect_the_older(task["restored"]);
}

// Neither the answer nor the report was received: asked again, the node reports the image of the instance and
// starts nothing.
TEST_F(ImagesTest, TheOlderImageIsKnownToACoordinatorThatWasStartedAgain) {
  a_.vault->age_ms = 60'000;
  order("snapshot");
  a_.vault->age_ms = 0;
  order("snapshot");
  a_.vault->finds_damage = true;
  a_.vault->lose_restored = true;
  ASSERT_EQ(cluster_.post("/v1/jobs/train/restore", kAccept).status, 202U);
  wait_for_restores(a_, 1);
  cluster_.stop();
  a_.vault->lose_restored = false;
  cluster_.start();
  cluster_.wait_for_event("job-restored");
  EXPECT_EQ(a_.vault->restores, 1U);
  const std::string event = text_of("job-restored");
  EXPECT_NE(event.find("from j1.v1@node-a"), std::string::npos) << event;
}

TEST_F(ImagesTest, JobWhoseRestoreFailsStaysParked) {
  order("snapshot");
  a_.vault->refuse_restores = true;
  const json task = order("restore", kAccept);
  EXPECT_EQ(task["exit_code"], 1);
  EXPECT_EQ(job()["state"], "parked");
  EXPECT_NE(job()["reason"].get<std::string>().find("lacks tensor w1"), std::string::npos);
  a_.vault->refuse_restores = false;
  EXPECT_EQ(order("resume")["restored"]["incarnation"], 3);  // no incarnation twice
  EXPECT_EQ(alive(a_), Incarnations{3});
}

TEST_F(ImagesTest, SuspendAndResume) {
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

TEST_F(ImagesTest, ASuspendThatFailsLeavesTheJobRunning) {
  a_.vault->refuse_snapshots = true;
  EXPECT_EQ(order("suspend")["exit_code"], 1);
  EXPECT_EQ(job()["state"], "running");
  EXPECT_EQ(alive(a_), Incarnations{1});
}

// A coordinator that was restarted orders the snapshot again while the job leaves for the image that was
// ordered before.
TEST_F(ImagesTest, SuspendIsDoneByTheImageOfAnEarlierOrder) {
  a_.vault->ended_before = true;
  const json task = order("suspend");
  EXPECT_EQ(task["exit_code"], 0) << task;
  EXPECT_EQ(job()["state"], "parked");
  a_.vault->ended_before = false;
  EXPECT_EQ(order("resume")["restored"]["lost_ms"], 0);
}

TEST_F(ImagesTest, StopOfAJobThatLeavesForItsImageEndsIt) {
  a_.vault->hold_snapshots = true;
  a_.vault->ignore_cancels = true;
  const json suspend = cluster_.post("/v1/jobs/train/suspend").json();
  wait_for_snapshots(a_, 1);
  ASSERT_EQ(cluster_.post("/v1/jobs/train/stop").status, 202U);
  a_.vault->release_snapshots();
  EXPECT_EQ(finished(suspend)["exit_code"], 2);
  wait_until([this] { return job()["state"] == "exited"; });
  EXPECT_EQ(job()["exit_code"], 143);
}

TEST_F(ImagesTest, JobThatLeftForAnImageThatIsNotThereIsLost) {
  a_.vault->hold_snapshots = true;
  const json suspend = cluster_.post("/v1/jobs/train/suspend").json();
  wait_for_snapshots(a_, 1);
  a_.agent->post([this] { a_.agent->change(1, 1, JobPhase::kMoved); });
  a_.vault->refuse_snapshots = true;
  a_.vault->release_snapshots();
  EXPECT_EQ(finished(suspend)["exit_code"], 1);
  wait_until([this] { return job()["state"] == "lost"; });
}

TEST_F(ImagesTest, SuspendOfAJobThatEndedBeforeItEndsWithTheJob) {
  a_.vault->hold_snapshots = true;
  const json suspend = cluster_.post("/v1/jobs/train/suspend").json();
  wait_for_snapshots(a_, 1);
  a_.agent->end_job(1, 0);
  a_.vault->refuse_snapshots = true;
  a_.vault->release_snapshots();
  EXPECT_EQ(finished(suspend)["exit_code"], 1);
  wait_until([this] { return job()["state"] == "exited"; });
}

TEST_F(ImagesTest, AParkedJobCanBeStopped) {
  order("suspend");
  EXPECT_EQ(cluster_.post("/v1/jobs/train/stop").json()["state"], "exited");
  EXPECT_EQ(job()["exit_code"], 143);
}

TEST_F(ImagesTest, ImageOfAParkedJobIsNotRemovedWithoutForce) {
  order("snapshot");
  order("suspend");
  expect_refused(cluster_.post("/v1/images/j1.v2@node-a/remove"), 409, "rests in");
  EXPECT_EQ(cluster_.post("/v1/images/j1.v1@node-a/remove").status, 200U);
  EXPECT_EQ(cluster_.get("/v1/images").json().size(), 1U);
  EXPECT_EQ(cluster_.post("/v1/images/j1.v2@node-a/remove", R"({"force":true})").status, 200U);
  expect_refused(cluster_.post("/v1/jobs/train/resume"), 404, "no image");
}

// ---- a snapshot beside a move ----

TEST_F(ImagesTest, SnapshotThatYieldsEndsAsFailed) {
  a_.vault->gives_way = true;
  const json task = order("snapshot");
  EXPECT_EQ(task["exit_code"], 1) << task;
  EXPECT_NE(task["error"].get<std::string>().find("gave way"), std::string::npos) << task;
  EXPECT_EQ(job()["state"], "running");
}

TEST_F(ImagesTest, MigrateBeginsAlthoughASnapshotPausesTheJob) {
  a_.vault->hold_snapshots = true;
  ASSERT_EQ(cluster_.post("/v1/jobs/train/snapshot").status, 202U);
  wait_for_snapshots(a_, 1);
  a_.agent->post([this] { a_.agent->change(1, 1, JobPhase::kPaused); });
  wait_until([this] { return job()["state"] == "paused"; });
  const auto begun = cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b"})");
  EXPECT_EQ(begun.status, 202U) << begun.body;
}

// Its migration is closed, and its node reports a moment later that it continues.
TEST_F(ImagesTest, SnapshotWaitsForAJobThatIsAboutToGoOn) {
  a_.agent->post([this] { a_.agent->change(1, 1, JobPhase::kPaused); });
  wait_until([this] { return job()["state"] == "paused"; });
  auto ordered = std::async(std::launch::async, [this] { return order("snapshot"); });
  for (int looks = 0; looks < 100; ++looks) EXPECT_EQ(job()["state"], "paused");
  a_.agent->run_jobs();
  const json task = ordered.get();
  EXPECT_EQ(task["exit_code"], 0) << task;
}

TEST_F(ImagesTest, SnapshotOfAJobThatLeftItsNodeMeanwhileNamesItsImage) {
  a_.vault->hold_snapshots = true;
  const auto begun = cluster_.post("/v1/jobs/train/snapshot");
  wait_for_snapshots(a_, 1);
  ASSERT_EQ(cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b"})").status, 202U);
  wait_until([this] { return job()["node"] == "node-b" && job()["state"] == "running"; });
  a_.vault->release_snapshots();
  const json task = finished(begun.json());
  EXPECT_EQ(task["exit_code"], 0) << task;
  EXPECT_EQ(task["image"], "j1.v1@node-a");
}

// ---- cancelling operations into an image ----

class SuspendedFarAway : public ImagesTest {
 protected:
  // Into the vault of a node that does not serve it.
  void SetUp() override {
    ImagesTest::SetUp();
    b_.vault->refuse_grants = true;
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

TEST_F(SuspendedFarAway, DrainCancelsTheSuspend) {
  const auto begun = cluster_.post("/v1/drains", R"({"place":"node-a"})");
  EXPECT_EQ(begun.status / 100, 2U) << begun.body;
  cluster_.wait_for_event("drain-ended");
  EXPECT_EQ(job()["node"], "node-b");
  EXPECT_EQ(finished(suspend_)["exit_code"], 2);
}

TEST_F(ImagesTest, MigrateHasASnapshotGivenUpThatASuspendWaitsFor) {
  a_.vault->hold_snapshots = true;
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

TEST_F(ImagesTest, StopOfAJobThatIsBeingSuspendedGoesOnAfterARestart) {
  a_.vault->hold_snapshots = true;
  ASSERT_EQ(cluster_.post("/v1/jobs/train/suspend").status, 202U);
  wait_for_snapshots(a_, 1);
  a_.vault->ignore_cancels = true;
  ASSERT_EQ(cluster_.post("/v1/jobs/train/stop").status, 202U);
  cluster_.stop();
  a_.agent->stop();
  cluster_.start();
  cluster_.wait_for_event("snapshot-failed");
  // Its node is not back: the stop is owed to it.
  wait_until([this] { return job()["state"] == "exited"; });
  EXPECT_EQ(cluster_.get("/v1/images").json().size(), 0U);
}

TEST_F(ImagesTest, RestoreByForceCancelsASuspend) {
  order("snapshot", R"({"to":"/vault"})");
  a_.vault->hold_snapshots = true;
  const json suspend = cluster_.post("/v1/jobs/train/suspend").json();
  wait_for_snapshots(a_, 2);
  expect_refused(cluster_.post("/v1/jobs/train/restore"), 409, "suspending");
  const json task = order("restore", R"({"accept_loss":true,"force":true,"to":"node-b"})");
  EXPECT_EQ(task["restored"]["at"], "node-b:0") << task;
  EXPECT_EQ(finished(suspend)["exit_code"], 2);
  EXPECT_TRUE(alive(a_).empty());
}

TEST_F(ImagesTest, StopOfAJobThatIsBeingResumedEndsItAlthoughItsNodeDoesNotAnswer) {
  order("suspend", R"({"to":"/vault"})");
  b_.vault->hold_restores = true;
  const json resume = cluster_.post("/v1/jobs/train/resume", R"({"to":"node-b"})").json();
  wait_for_restores(b_, 1);
  ASSERT_EQ(cluster_.post("/v1/jobs/train/stop").status, 202U);
  cluster_.wait_for_event("job-ended");
  EXPECT_EQ(job()["state"], "exited");
  EXPECT_EQ(finished(resume)["exit_code"], 2);
}

class VaultAwayForLong : public SuspendedFarAway {
 protected:
  void SetUp() override {
    cluster_.config().vault_timeout_ms = 100;
    SuspendedFarAway::SetUp();
  }
};

TEST_F(VaultAwayForLong, SuspendFailsAndTheJobRunsOn) {
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

TEST_F(ShortOfTime, SuspendThatTakesTooLongIsGivenUpAndTheJobRunsOn) {
  a_.vault->hold_snapshots = true;
  EXPECT_EQ(order("suspend")["exit_code"], 2);
  EXPECT_EQ(job()["state"], "running");
  EXPECT_EQ(alive(a_), Incarnations{1});
}

TEST_F(ShortOfTime, ParkingAJobDoesNotWaitForAnAbsentNode) {
  a_.vault->lose_answers = true;
  a_.vault->hold_lists = true;
  const json suspend = cluster_.post("/v1/jobs/train/suspend").json();
  EXPECT_EQ(finished(suspend)["exit_code"], 6);
  EXPECT_EQ(job()["state"], "suspending");
}

// ---- which is the newest, and which go ----

TEST_F(ImagesTest, NewestImageIsTheLastOrderedWhenAClockWasAhead) {
  a_.vault->age_ms = -60'000;
  order("snapshot");
  a_.vault->age_ms = 0;
  order("snapshot", R"({"to":"node-b"})");
  EXPECT_EQ(ask_newest(), "node-b");
  const json images = cluster_.get("/v1/images").json();
  EXPECT_LT(images[0]["sequence"], images[1]["sequence"]) << images;
  restart_coordinator();
  a_.vault->age_ms = 60'000;
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

TEST_F(ImagesForAMoment, ImagesOfAJobThatEndedAreCollected) {
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

TEST_F(ImagesTest, TheNewestThatANodeCanRead) {
  order("snapshot");
  EXPECT_EQ(ask_newest(), "node-a");
  go_away(a_);
  EXPECT_EQ(ask_newest(), "");
  const auto restored =
      ask_images<Restored>([](Images& images) { return images.restore(1, std::nullopt, "x"); });
  ASSERT_FALSE(restored);
  EXPECT_EQ(restored.error().code(), ErrorCode::kRefused);  // the instance may live
}

// ---- the coordinator is killed at each record ----

TEST_F(ImagesTest, RestartWhileTheOldInstanceIsToEnd) {
  order("snapshot", R"({"to":"/vault"})");
  a_.agent->post([this] { a_.agent->ignore_stops = true; });
  ASSERT_EQ(cluster_.post("/v1/jobs/train/restore", R"({"accept_loss":true,"to":"node-b"})").status, 202U);
  restart_coordinator();
  cluster_.wait_for_event("node-ready", 4);
  EXPECT_EQ(job()["state"], "restoring");
  EXPECT_EQ(b_.vault->restores, 0U);
  a_.agent->post([this] { a_.agent->ignore_stops = false; });
  cluster_.wait_for_event("job-restored");
  EXPECT_TRUE(alive(a_).empty());
  EXPECT_EQ(alive(b_), Incarnations{2});
}

TEST_F(ImagesTest, RestartWhileTheNextInstanceStarts) {
  order("snapshot", R"({"to":"/vault"})");
  b_.vault->hold_restores = true;
  ASSERT_EQ(cluster_.post("/v1/jobs/train/restore", R"({"accept_loss":true,"to":"node-b"})").status, 202U);
  wait_for_restores(b_, 1);
  b_.vault->hold_restores = false;
  restart_coordinator();
  cluster_.wait_for_event("job-restored");
  EXPECT_TRUE(alive(a_).empty());
  EXPECT_EQ(alive(b_), Incarnations{2});
  EXPECT_EQ(job()["state"], "running");
}

TEST_F(ImagesTest, RestartAfterTheNextInstanceStarted) {
  order("snapshot", R"({"to":"/vault"})");
  b_.vault->hold_restores = true;
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
  EXPECT_EQ(b_.vault->restores, 1U);  // not once more
  EXPECT_EQ(alive(b_), Incarnations{2});
}

TEST_F(ImagesTest, RestartWhileTheLastImageIsTaken) {
  a_.vault->hold_snapshots = true;
  ASSERT_EQ(cluster_.post("/v1/jobs/train/suspend").status, 202U);
  wait_for_snapshots(a_, 1);
  a_.vault->hold_snapshots = false;
  restart_coordinator();
  cluster_.wait_for_event("job-parked");
  EXPECT_EQ(a_.vault->snapshots, 2U);
  EXPECT_EQ(job()["state"], "parked");
}

TEST_F(ImagesTest, RestartAfterTheLastImageWasTaken) {
  a_.vault->lose_answers = true;
  ASSERT_EQ(cluster_.post("/v1/jobs/train/suspend").status, 202U);
  wait_for_snapshots(a_, 1);
  restart_coordinator();
  cluster_.wait_for_event("job-parked");
  EXPECT_EQ(a_.vault->snapshots, 1U);
  EXPECT_EQ(job()["state"], "parked");
  EXPECT_EQ(order("resume")["restored"]["lost_ms"], 0);
}

TEST_F(ImagesTest, AJobThatEndsByItselfWhileItIsSuspendedHasEnded) {
  a_.vault->hold_snapshots = true;
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

TEST_F(ImagesTest, AProtectedJobHasImages) {
  const auto answer = cluster_.post("/v1/jobs/train/protect", R"({"every_ms":1000,"to":"/vault","keep":3})");
  ASSERT_EQ(answer.status, 200U) << answer.body;
  cluster_.wait_for_event("job-protected");
  wait_for_snapshots(a_, 2);
  const json protection = job()["protection"];
  EXPECT_EQ(protection["every_ms"], 1000);
  EXPECT_EQ(protection["to"], "/vault");
  EXPECT_EQ(protection["keep"], 3);
  EXPECT_EQ(protection["last_pause_ms"], 3.0);
  restart_coordinator();
  const unsigned before = a_.vault->snapshots;
  wait_for_snapshots(a_, before + 2);
  EXPECT_EQ(cluster_.post("/v1/jobs/train/unprotect").status, 200U);
  EXPECT_TRUE(job()["protection"].is_null());
  EXPECT_EQ(cluster_.post("/v1/jobs/train/unprotect").status, 409U);
}

TEST_F(ImagesTest, FailingProtectionIsReported) {
  a_.vault->refuse_snapshots = true;
  cluster_.post("/v1/jobs/train/protect", R"({"every_ms":1000})");
  cluster_.wait_for_event("snapshot-failed");
  EXPECT_EQ(job()["protection"]["failures"], 1);
  EXPECT_NE(job()["protection"]["last_error"].get<std::string>().find("The disk is full"), std::string::npos);
}

TEST_F(ImagesTest, ProtectionThatWorksIsNotReplacedByOneThatCannotBeWritten) {
  ASSERT_EQ(cluster_.post("/v1/jobs/train/protect", R"({"every_ms":60000,"to":"node-b"})").status, 200U);
  const json before = job()["protection"];
  a_.vault->refuse_checks = true;
  for (const char* body : {R"({"every_ms":1000,"to":"/x"})", R"({"every_ms":1000,"to":"/x","dry_run":true})"})
    expect_refused(cluster_.post("/v1/jobs/train/protect", body), 409, "its protection stays as it is");
  const json after = job()["protection"];
  EXPECT_EQ(after["to"], "node-b");
  EXPECT_EQ(after["every_ms"], before["every_ms"]);
  b_.vault->refuse_grants = true;
  expect_refused(cluster_.post("/v1/jobs/train/protect", R"({"every_ms":1000,"to":"node-b"})"), 409,
                 "not protected at node-b");
}

TEST_F(ImagesTest, SuspendLeavesAProtectionThatFailsForItsOwnNode) {
  ASSERT_EQ(cluster_.post("/v1/jobs/train/protect", R"({"every_ms":60000,"to":"/vault"})").status, 200U);
  a_.vault->refuse_checks = true;
  const json task = order("suspend");
  EXPECT_EQ(task["exit_code"], 0) << task;
  EXPECT_NE(task["image"].get<std::string>().find("@node-a"), std::string::npos) << task;
  EXPECT_NE(job()["reason"].get<std::string>().find("protection fails: "), std::string::npos) << job();
}

TEST_F(ImagesTest, ATransparentJobIsProtectedEveryFiveMinutesAtMost) {
  ASSERT_EQ(
      cluster_
          .post("/v1/jobs",
                R"({"argv":["./plain"],"cwd":"/tmp","node":"node-a","name":"plain","way":"transparent"})")
          .status,
      201U);
  expect_refused(cluster_.post("/v1/jobs/plain/protect", R"({"every_ms":30000})"), 409, "--force");
  const auto dry = cluster_.post("/v1/jobs/plain/protect", R"({"every_ms":300000,"dry_run":true})");
  EXPECT_EQ(dry.status, 200U) << dry.body;
  EXPECT_NE(dry.body.find("not known yet"), std::string::npos) << dry.body;
  EXPECT_TRUE(cluster_.get("/v1/jobs/plain").json()["protection"].is_null());
  EXPECT_EQ(cluster_.post("/v1/jobs/plain/protect", R"({"every_ms":30000,"force":true})").status, 200U);
}

}  // namespace
}  // namespace ckpt::coordinator::test
