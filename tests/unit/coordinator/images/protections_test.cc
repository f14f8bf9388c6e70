// SPDX-License-Identifier: Apache-2.0
// Tests of jobs that are protected by periodic images.
#include "tests/unit/coordinator/images/images_fixture.h"

namespace ckpt::coordinator::test {
namespace {

TEST_F(ImagesTest, AProtectedJobGetsImages) {
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
  const unsigned before = a_.checkpoint_store->snapshots;
  wait_for_snapshots(a_, before + 2);
  EXPECT_EQ(cluster_.post("/v1/jobs/train/unprotect").status, 200U);
  EXPECT_TRUE(job()["protection"].is_null());
  EXPECT_EQ(cluster_.post("/v1/jobs/train/unprotect").status, 409U);
}

TEST_F(ImagesTest, FailingProtectionIsReported) {
  a_.checkpoint_store->refuse_snapshots = true;
  cluster_.post("/v1/jobs/train/protect", R"({"every_ms":1000})");
  cluster_.wait_for_event("snapshot-failed");
  EXPECT_NE(text_of("snapshot-failed").find("no images of job train ("), std::string::npos);
  EXPECT_EQ(job()["protection"]["failures"], 1);
  EXPECT_NE(job()["protection"]["last_error"].get<std::string>().find("The disk is full"), std::string::npos);
}

TEST_F(ImagesTest, WorkingProtectionIsNotReplacedByAProtectionThatCannotWrite) {
  ASSERT_EQ(cluster_.post("/v1/jobs/train/protect", R"({"every_ms":60000,"to":"node-b"})").status, 200U);
  const json before = job()["protection"];
  a_.checkpoint_store->refuse_checks = true;
  for (const char* body : {R"({"every_ms":1000,"to":"/x"})", R"({"every_ms":1000,"to":"/x","dry_run":true})"})
    expect_refused(cluster_.post("/v1/jobs/train/protect", body), 409,
                   "its current protection stays unchanged");
  const json after = job()["protection"];
  EXPECT_EQ(after["to"], "node-b");
  EXPECT_EQ(after["every_ms"], before["every_ms"]);
  b_.checkpoint_store->refuse_grants = true;
  expect_refused(cluster_.post("/v1/jobs/train/protect", R"({"every_ms":1000,"to":"node-b"})"), 409,
                 "not protected at node-b");
}

TEST_F(ImagesTest, SuspendIgnoresAFailingProtectionAndUsesItsOwnNode) {
  ASSERT_EQ(cluster_.post("/v1/jobs/train/protect", R"({"every_ms":60000,"to":"/vault"})").status, 200U);
  a_.checkpoint_store->refuse_checks = true;
  const json task = order("suspend");
  EXPECT_EQ(task["exit_code"], 0) << task;
  EXPECT_NE(task["image"].get<std::string>().find("@node-a"), std::string::npos) << task;
  EXPECT_NE(job()["reason"].get<std::string>().find("protection fails: "), std::string::npos) << job();
}

TEST_F(ImagesTest, ATransparentJobIsProtectedAtMostEveryFiveMinutes) {
  ASSERT_EQ(
      cluster_
          .post("/v1/jobs",
                R"({"argv":["./plain"],"cwd":"/tmp","node":"node-a","name":"plain","mode":"transparent"})")
          .status,
      201U);
  expect_refused(cluster_.post("/v1/jobs/plain/protect", R"({"every_ms":30000})"), 409, "--force");
  const auto dry = cluster_.post("/v1/jobs/plain/protect", R"({"every_ms":300000,"dry_run":true})");
  EXPECT_EQ(dry.status, 200U) << dry.body;
  EXPECT_NE(dry.body.find("not known yet"), std::string::npos) << dry.body;
  EXPECT_TRUE(cluster_.get("/v1/jobs/plain").json()["protection"].is_null());
  EXPECT_EQ(cluster_.post("/v1/jobs/plain/protect", R"({"every_ms":30000,"force":true})").status, 200U);
}

// A job of two ranks, beside the job of one rank of ImagesTest.
class ImagesOfRanks : public ImagesTest {
 protected:
  void SetUp() override {
    ImagesTest::SetUp();
    c_ = node("node-c");
    c_.agent->start();
    cluster_.wait_for_event("node-ready", 3);
    const auto answer = cluster_.post(
        "/v1/jobs", R"({"argv":["./train"],"cwd":"/tmp","name":"ranks","ranks":2,"nodes":["node-b","node-c"],
                        "env":{"MASTER_ADDR":"x","MASTER_PORT":"1"}})");
    ASSERT_EQ(answer.status, 201U) << answer.body;
  }
  void TearDown() override {
    c_.agent.reset();
    ImagesTest::TearDown();
  }
  json ranks() { return cluster_.get("/v1/jobs/ranks").json(); }
  // Returns the jobs of the ranks' images, with the number of their images.
  std::map<std::string, unsigned> images_by_name() {
    std::map<std::string, unsigned> found;
    for (const json& image : cluster_.get("/v1/images").json()) ++found[image["job_name"].get<std::string>()];
    return found;
  }
  JobId id_of_rank(const std::string& name) {
    const json rank = cluster_.get("/v1/jobs/" + name).json();
    return parse_job_id(rank["id"].get<std::string>()).value();
  }
  TestNode c_;
};

TEST_F(ImagesOfRanks, AllRanksOfAProtectedJobGetImages) {
  const auto answer = cluster_.post("/v1/jobs/ranks/protect", R"({"every_ms":1000,"to":"/vault","keep":3})");
  ASSERT_EQ(answer.status, 200U) << answer.body;
  EXPECT_TRUE(answer.json()["note"].is_null()) << answer.body;
  wait_for_snapshots(b_, 2);
  wait_for_snapshots(c_, 2);
  const json protection = ranks()["protection"];
  EXPECT_EQ(protection["every_ms"], 1000);
  EXPECT_EQ(protection["to"], "/vault");
  EXPECT_EQ(protection["failures"], 0) << protection;
  restart_coordinator();
  const unsigned before = c_.checkpoint_store->snapshots;
  wait_for_snapshots(c_, before + 2);
  EXPECT_EQ(cluster_.post("/v1/jobs/ranks/unprotect").status, 200U);
  EXPECT_TRUE(ranks()["protection"].is_null());
  EXPECT_EQ(cluster_.post("/v1/jobs/ranks/unprotect").status, 409U);
}

TEST_F(ImagesOfRanks, FailureOfOneRankIsAFailureOfTheProtection) {
  c_.checkpoint_store->refuse_snapshots = true;
  cluster_.post("/v1/jobs/ranks/protect", R"({"every_ms":60000})");
  cluster_.wait_for_event("snapshot-failed");
  const std::string text = text_of("snapshot-failed");
  EXPECT_NE(text.find("no images of job ranks ("), std::string::npos) << text;
  EXPECT_NE(text.find("failure 1 in a row"), std::string::npos) << text;
  EXPECT_EQ(ranks()["protection"]["failures"], 1);
  EXPECT_NE(ranks()["protection"]["last_error"].get<std::string>().find("The disk is full"),
            std::string::npos);
}

TEST_F(ImagesOfRanks, ProtectionThatOneRankCannotWriteIsRefused) {
  c_.checkpoint_store->refuse_checks = true;
  expect_refused(cluster_.post("/v1/jobs/ranks/protect", R"({"every_ms":60000,"to":"/x"})"), 409,
                 "Job ranks is not protected at /x, because its images cannot be written");
  EXPECT_TRUE(ranks()["protection"].is_null());
}

TEST_F(ImagesOfRanks, NoteListsTheNodesWhoseLossDestroysImages) {
  const auto note = [this](const std::string& job, const std::string& to) {
    const auto answer = cluster_.post("/v1/jobs/" + job + "/protect",
                                      R"({"every_ms":60000,"dry_run":true,"to":")" + to + R"("})");
    return answer.json()["note"];
  };
  EXPECT_NE(
      note("ranks", "").get<std::string>().find("checkpoint stores of node-b, node-c, where the job runs"),
      std::string::npos);
  EXPECT_NE(note("ranks", "node-c").get<std::string>().find("checkpoint store of node-c, where the job runs"),
            std::string::npos);
  EXPECT_NE(note("train", "").get<std::string>().find("checkpoint store of node-a, where the job runs"),
            std::string::npos);
  EXPECT_TRUE(note("ranks", "node-a").is_null());
  EXPECT_TRUE(note("ranks", "/vault").is_null());
}

TEST_F(ImagesOfRanks, SnapshotTakesAnImageOfEachRank) {
  const auto begun = cluster_.post("/v1/jobs/ranks/snapshot");
  ASSERT_EQ(begun.status, 202U) << begun.body;
  const json set = finished(begun.json());
  EXPECT_EQ(set["exit_code"], 0) << set;
  EXPECT_EQ(set["images"].size(), 2U) << set;
  const json single = order("snapshot");
  EXPECT_EQ(single["exit_code"], 0) << single;
  EXPECT_EQ(images_by_name(),
            (std::map<std::string, unsigned>{{"ranks.0", 1}, {"ranks.1", 1}, {"train", 1}}));
}

TEST_F(ImagesOfRanks, ForcedRestoreOfAJobOfSeveralRanksIsRefused) {
  expect_refused(cluster_.post("/v1/jobs/ranks/restore", R"({"force":true})"), 501,
                 "--force is not supported for a job of several ranks");
}

TEST_F(ImagesOfRanks, RankIsNeitherParkedNorRestoredWithoutTheOtherRanks) {
  const JobId rank = id_of_rank("ranks.1");
  const auto parked = ask_images<void>([rank](Images& images) { return images.park(rank, true, "x"); });
  ASSERT_FALSE(parked.has_value());
  EXPECT_EQ(parked.error().code(), ErrorCode::kRefused);
  EXPECT_NE(parked.error().to_string().find("parked and restored together"), std::string::npos);
  const auto restored =
      ask_images<Restored>([rank](Images& images) { return images.restore(rank, std::nullopt, "x"); });
  ASSERT_FALSE(restored.has_value());
  EXPECT_EQ(restored.error().code(), ErrorCode::kRefused);
  EXPECT_EQ(c_.checkpoint_store->snapshots, 0U);
}

}  // namespace
}  // namespace ckpt::coordinator::test
