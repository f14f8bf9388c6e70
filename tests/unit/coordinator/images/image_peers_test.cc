// SPDX-License-Identifier: Apache-2.0
// Tests of images in the checkpoint stores of other nodes, and of jobs that were forgotten. The coordinator
// is real; agents and checkpoint stores speak the messages and do nothing.
#include <gtest/gtest.h>

#include <future>

#include "tests/unit/coordinator/support/cluster.h"
#include "tests/unit/coordinator/support/fake_checkpoint_store.h"

namespace ckpt::coordinator::test {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMuch = std::uint64_t{8} << 30;

class ImagePeers : public ::testing::Test {
 protected:
  struct TestNode {
    std::unique_ptr<FakeAgent> agent;
    std::unique_ptr<FakeCheckpointStore> checkpoint_store;
  };
  void SetUp() override {
    cluster_.config().ended_jobs_kept = 0;
    cluster_.start();
    for (TestNode* n : {&a_, &b_, &c_}) {
      const std::string name = std::string("node-") + static_cast<char>('a' + (n - &a_));
      n->agent = std::make_unique<FakeAgent>(name, cluster_.agent_address(), cluster_.agent_token());
      n->checkpoint_store = std::make_unique<FakeCheckpointStore>(*n->agent, name, shared_);
      n->agent->start();
    }
    cluster_.wait_for_event("node-ready", 3);
    run("train");
  }
  void TearDown() override {
    for (TestNode* n : {&a_, &b_, &c_}) n->agent.reset();
  }
  void run(const std::string& name) {
    const auto answer = cluster_.post(
        "/v1/jobs", R"({"argv":["./train"],"cwd":"/tmp","node":"node-a","name":")" + name + R"("})");
    ASSERT_EQ(answer.status, 201U) << answer.body;
  }
  json job() { return cluster_.get("/v1/jobs/train").json(); }
  json order(const std::string& verb, const std::string& body = "{}", const std::string& job = "train") {
    const auto begun = cluster_.post("/v1/jobs/" + job + "/" + verb, body);
    EXPECT_EQ(begun.status, 202U) << begun.body;
    json task = begun.json();
    while (begun.status == 202U && task["open"].get<bool>())
      task = cluster_.get("/v1/tasks/" + task["id"].get<std::string>()).json();
    return task;
  }
  // Waits until all ended jobs are forgotten.
  void forget() {
    a_.agent->set_free(kMuch);
    wait_until([this] { return cluster_.get("/v1/jobs").json().empty(); });
  }
  void go_away(TestNode& gone) {
    gone.agent->stop();
    cluster_.wait_for_event("node-lost");
  }
  void wait_until(const std::function<bool()>& holds) {
    while (!holds()) {
      ASSERT_EQ(cluster_.get("/v1/status").status, 200U);
      std::this_thread::yield();
    }
  }

  Cluster cluster_;
  std::shared_ptr<SharedFolders> shared_ = std::make_shared<SharedFolders>();
  TestNode a_, b_, c_;
};

TEST_F(ImagePeers, ASnapshotIsWrittenToTheGrantedCheckpointStore) {
  const json task = order("snapshot", R"({"to":"node-b"})");
  EXPECT_EQ(task["exit_code"], 0) << task;
  EXPECT_EQ(task["image"], "j1.v1@node-b");
  EXPECT_EQ(task["report"]["pause_ms"], 3.0);
  EXPECT_EQ(b_.checkpoint_store->grants, 1U);
  EXPECT_EQ(b_.checkpoint_store->revoked, 1U);
  EXPECT_FALSE(b_.checkpoint_store->durable);
  const json images = cluster_.get("/v1/images").json();
  ASSERT_EQ(images.size(), 1U);
  EXPECT_EQ(images[0]["node"], "node-b");
  EXPECT_EQ(images[0]["pause_ms"], 3.0) << "what its report said belongs to the image where it lies";
  EXPECT_EQ(job()["last_snapshot"]["image"], "j1.v1@node-b");
}

TEST_F(ImagePeers, EachCheckpointStoreNumbersItsOwnVersions) {
  order("snapshot");
  order("snapshot", R"({"to":"node-b"})");
  const json images = cluster_.get("/v1/images").json();
  ASSERT_EQ(images.size(), 2U);
  EXPECT_EQ(images[0]["id"], "j1.v1@node-a");
  EXPECT_EQ(images[1]["id"], "j1.v1@node-b");
  EXPECT_EQ(images[1]["pause_ms"], 3.0) << "its report was taken for one of another checkpoint store";
}

TEST_F(ImagePeers, RefusedGrantFailsTheSnapshotAndTheJobContinues) {
  b_.checkpoint_store->refuse_grants = true;
  const json task = order("snapshot", R"({"to":"node-b"})");
  EXPECT_NE(task["exit_code"], 0);
  EXPECT_NE(task["error"].get<std::string>().find("not served"), std::string::npos) << task;
  EXPECT_EQ(a_.checkpoint_store->snapshots, 0U);
  EXPECT_EQ(job()["state"], "running");
}

TEST_F(ImagePeers, AFailedSnapshotRevokesItsGrant) {
  a_.checkpoint_store->refuse_snapshots = true;
  EXPECT_EQ(order("snapshot", R"({"to":"node-b"})")["exit_code"], 1);
  EXPECT_EQ(b_.checkpoint_store->revoked, 1U);
}

TEST_F(ImagePeers, ProtectionUsesItsCheckpointStoreAndSnapshotsDefaultToThatCheckpointStore) {
  const json protection =
      cluster_.post("/v1/jobs/train/protect", R"({"every_ms":1000,"to":"node-b"})").json();
  EXPECT_EQ(protection["to"], "node-b");
  EXPECT_TRUE(protection["note"].is_null()) << protection;
  wait_until([this] { return b_.checkpoint_store->grants >= 2; });
  EXPECT_EQ(order("snapshot")["image"].get<std::string>().substr(5), "@node-b");
  // If the images are on the job's own node, the note warns that they are lost with that node.
  const json own = cluster_.post("/v1/jobs/train/protect", R"({"every_ms":1000,"to":"node-a"})").json();
  EXPECT_NE(own["note"].get<std::string>().find("would be lost with that node"), std::string::npos) << own;
}

TEST_F(ImagePeers, JobRestoresOnTheNodeThatStoresItsImage) {
  order("snapshot", R"({"to":"node-c"})");
  go_away(a_);
  const json task = order("restore", R"({"accept_loss":true,"force":true})");
  EXPECT_EQ(task["restored"]["at"], "node-c:0") << task;
  EXPECT_EQ(c_.checkpoint_store->grants, 1U) << "what is there needs no grant";
  EXPECT_EQ(job()["state"], "running");
}

TEST_F(ImagePeers, AThirdNodeReadsTheImageThroughAGrant) {
  order("snapshot", R"({"to":"node-b"})");
  const json task = order("restore", R"({"accept_loss":true,"to":"node-c"})");
  EXPECT_EQ(task["restored"]["at"], "node-c:0") << task;
  EXPECT_EQ(task["restored"]["image"], "j1.v1@node-b");
  EXPECT_EQ(b_.checkpoint_store->grants, 2U);
  EXPECT_EQ(b_.checkpoint_store->revoked, 2U);
  EXPECT_EQ(c_.checkpoint_store->restores, 1U);
}

// The job's own node has to be left, but its checkpoint store can still be read.
TEST_F(ImagePeers, OtherNodesReadTheCheckpointStoreOfAFullNode) {
  order("suspend");
  a_.agent->set_free(0);
  wait_until([this] { return cluster_.get("/v1/gpus").json()[0]["free_bytes"] == 0; });
  const json task = order("resume");
  EXPECT_NE(task["restored"]["at"], "node-a:0") << task;
  EXPECT_EQ(task["restored"]["image"], "j1.v1@node-a");
  EXPECT_EQ(a_.checkpoint_store->grants, 1U);
}

TEST_F(ImagePeers, JobThatNoNodeCanResumeStaysParkedWithTheReason) {
  order("suspend", R"({"to":"node-b"})");
  EXPECT_TRUE(b_.checkpoint_store->durable) << "nothing but the image is left of it";
  EXPECT_EQ(job()["state"], "parked");
  go_away(b_);
  const auto answer = cluster_.post("/v1/jobs/train/resume");
  EXPECT_EQ(answer.status, 503U) << answer.body;
  EXPECT_NE(answer.body.find("in the checkpoint store of node-b, which is not connected"), std::string::npos);
  EXPECT_EQ(job()["state"], "parked");
}

TEST_F(ImagePeers, JobWithAnUnavailableCheckpointStoreStaysParked) {
  order("snapshot", R"({"to":"node-b"})");
  b_.checkpoint_store->refuse_grants = true;
  const json task = order("restore", R"({"accept_loss":true,"to":"node-c"})");
  EXPECT_EQ(task["exit_code"], 1) << task;
  EXPECT_EQ(job()["state"], "parked");
  EXPECT_NE(job()["reason"].get<std::string>().find("The checkpoint store of node-b cannot be read"),
            std::string::npos)
      << job();
  b_.checkpoint_store->refuse_grants = false;
  EXPECT_EQ(order("resume", R"({"to":"node-c"})")["restored"]["at"], "node-c:0");
  EXPECT_EQ(c_.checkpoint_store->restores, 1U);
}

// The coordinator exits after its order and before the answer. The next coordinator can no longer read the
// image, but the job runs.
TEST_F(ImagePeers, CheckpointStoreThatDisconnectsAfterTheStartDoesNotParkTheJob) {
  order("suspend", R"({"to":"node-b"})");
  c_.checkpoint_store->lose_restored = true;
  ASSERT_EQ(cluster_.post("/v1/jobs/train/resume", R"({"to":"node-c"})").status, 202U);
  wait_until([this] { return c_.checkpoint_store->restores == 1U; });
  cluster_.stop();
  b_.agent->stop();
  c_.checkpoint_store->lose_restored = false;
  cluster_.start();
  wait_until([this] { return job()["state"] == "running" || job()["state"] == "parked"; });
  EXPECT_EQ(job()["state"], "running");
  EXPECT_EQ(job()["incarnation"], 2);
  EXPECT_EQ(c_.checkpoint_store->restores, 1U);
}

// ---- jobs that were forgotten ----

TEST_F(ImagePeers, ForgottenJobIsRestoredFromItsImageAsANewJob) {
  order("snapshot", R"({"to":"node-b"})");
  a_.agent->end_job(1, 0);
  cluster_.wait_for_event("job-ended");
  forget();
  ASSERT_EQ(cluster_.get("/v1/jobs/train").status, 404U);
  ASSERT_EQ(cluster_.get("/v1/images").json().size(), 1U);
  EXPECT_EQ(cluster_.post("/v1/jobs/j1/restore").status, 404U) << "without an image nobody knows what it was";
  const json task = order("restore", R"({"image":"j1.v1@node-b","to":"node-c"})", "j1");
  EXPECT_EQ(task["restored"]["at"], "node-c:0") << task;
  EXPECT_EQ(task["job"], "j2");
  EXPECT_EQ(job()["id"], "j2");
  EXPECT_EQ(job()["incarnation"], 1);
  EXPECT_EQ(job()["state"], "running");
  // From now on the job's images are its own.
  EXPECT_EQ(order("snapshot", R"({"to":"node-b"})")["image"].get<std::string>().substr(0, 3), "j2.");
}

TEST_F(ImagePeers, AForgottenJobThatDoesNotStartLeavesNoJob) {
  order("snapshot", R"({"to":"node-b"})");
  a_.agent->end_job(1, 0);
  cluster_.wait_for_event("job-ended");
  forget();
  EXPECT_EQ(cluster_.post("/v1/jobs/j1/restore", R"({"image":"j1.v1@node-b","to":"node-c:7"})").status, 404U);
  EXPECT_EQ(cluster_.get("/v1/jobs").json().size(), 0U);
  c_.checkpoint_store->refuse_restores = true;
  const json task = order("restore", R"({"image":"j1.v1@node-b","to":"node-c"})", "j1");
  EXPECT_EQ(task["exit_code"], 1);
  EXPECT_EQ(job()["state"], "failed") << "it has no image of its own to rest in";
}

// The job's name may belong to another job by now.
TEST_F(ImagePeers, AForgottenJobDoesNotTakeTheNameOfALiveJob) {
  order("snapshot", R"({"to":"node-b"})");
  a_.agent->end_job(1, 0);
  cluster_.wait_for_event("job-ended");
  forget();
  run("train");
  const auto answer = cluster_.post("/v1/jobs/j1/restore", R"({"image":"j1.v1@node-b"})");
  EXPECT_EQ(answer.status, 409U) << answer.body;
}

}  // namespace
}  // namespace ckpt::coordinator::test
