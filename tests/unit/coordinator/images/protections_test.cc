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

}  // namespace
}  // namespace ckpt::coordinator::test
