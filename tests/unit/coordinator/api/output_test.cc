// SPDX-License-Identifier: Apache-2.0
// Tests of a job's output through the API: from the nodes of its instances, and from the copies that outlive
// them.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include "tests/unit/coordinator/api/api_fixture.h"

namespace ckpt::coordinator::test {
namespace {

TEST_F(ApiTest, LogContinuesAfterAnInstanceThatIsNotYetFreed) {
  two_nodes();
  a_->log = "before\n";
  a_->reads_until_freed = 3;
  b_->log = "after\n";
  start_nodes();
  run_job();
  const json m = finished(cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b"})").json()["id"]);
  EXPECT_EQ(m["result"], "done") << m;
  EXPECT_EQ(cluster_.get("/v1/jobs/train/logs?offset=7").body, "after\n");
}

TEST_F(ApiTest, LogContainsTheReachablePartsIfAFormerNodeIsDisconnected) {
  two_nodes();
  a_->log = "before\n";
  b_->log = "after\n";
  start_nodes();
  run_job();
  EXPECT_EQ(finished(cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b"})").json()["id"])["result"],
            "done");
  a_->stop();
  cluster_.wait_for_event("node-lost");
  const auto log = cluster_.get("/v1/jobs/train/logs");
  EXPECT_EQ(log.status, 200U) << log.body;
  EXPECT_EQ(log.body, "after\n");
  EXPECT_EQ(log.headers.at("X-Missing"), "node-a");
  EXPECT_EQ(log.headers.at("X-Next-Offset"), "13");  // offsets refer to the whole log
  EXPECT_EQ(cluster_.get("/v1/jobs/train/logs?offset=10").body, "er\n");
  EXPECT_EQ(cluster_.post("/v1/nodes/node-a/remove", R"({"force":true})").status, 200U);
  EXPECT_EQ(cluster_.get("/v1/jobs/train/logs").body, "after\n");
}

// Tests that move the job from a node whose output the coordinator copies, and wait for the copy.
class CopiedOutputTest : public ApiTest {
 protected:
  void SetUp() override {
    cluster_.config().kept_output_mib = 1;
    cluster_.config().output_copy_interval_ms = 100;
    ApiTest::SetUp();
    two_nodes();
    a_->log = "before\n";
    b_->log = "after\n";
    start_nodes();
    run_job();
  }
  void move() {
    EXPECT_EQ(finished(cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b"})").json()["id"])["result"],
              "done");
  }
  [[nodiscard]] std::string copy_of(const std::string& name) {
    return cluster_.config().folder() + "/output/" + name;
  }
  void wait_for_copy(const std::string& name, std::uintmax_t bytes) {
    wait_for_file("no copy of " + std::to_string(bytes) + " bytes: " + name, [&] {
      std::error_code none;
      return std::filesystem::file_size(copy_of(name), none) == 16 + bytes && !none;
    });
  }
  // Waits for a file by polling, since files have no event.
  static void wait_for_file(const std::string& else_what, const std::function<bool()>& is_so) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!is_so()) {
      ASSERT_LT(std::chrono::steady_clock::now(), until) << else_what;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
};

TEST_F(CopiedOutputTest, CopyIsReturnedIfANodeLostTheLog) {
  move();
  wait_for_copy("0000000000000001-1", 7);
  a_->has_lost_logs = true;
  EXPECT_EQ(cluster_.get("/v1/jobs/train/logs").body, "before\n");
  EXPECT_EQ(cluster_.get("/v1/jobs/train/logs?offset=7").body, "after\n");
}

TEST_F(CopiedOutputTest, CopyIsReturnedIfAFormerNodeIsDisconnectedOrRemoved) {
  move();
  wait_for_copy("0000000000000001-1", 7);
  a_->stop();
  cluster_.wait_for_event("node-lost");
  const auto expect_all = [this] {
    const auto first = cluster_.get("/v1/jobs/train/logs");
    EXPECT_EQ(first.status, 200U) << first.body;
    EXPECT_EQ(first.body, "before\n");
    EXPECT_FALSE(first.headers.contains("X-Missing"));
    EXPECT_EQ(first.headers.at("X-Next-Offset"), "7");
    EXPECT_EQ(cluster_.get("/v1/jobs/train/logs?offset=7").body, "after\n");
    EXPECT_EQ(cluster_.get("/v1/jobs/train/logs?offset=3").body, "ore\n");
    EXPECT_EQ(cluster_.get("/v1/jobs/train/logs?timestamps=1").body, "- before\n");
  };
  expect_all();
  EXPECT_EQ(cluster_.post("/v1/nodes/node-a/remove", R"({"force":true})").status, 200U);
  expect_all();
  cluster_.stop();
  cluster_.start();
  cluster_.wait_for_event("node-ready", 3);
  expect_all();
}

TEST_F(CopiedOutputTest, CopyIsCompleteBeforeANodeIsRemoved) {
  move();
  EXPECT_EQ(cluster_.post("/v1/nodes/node-a/remove").status, 200U);
  EXPECT_EQ(cluster_.get("/v1/jobs/train/logs").body, "before\n");
}

TEST_F(CopiedOutputTest, CopyContainsTheEndOfTheLogOfALostNode) {
  a_->post([this] { a_->change(1, 1, wire::JobPhase::kRunning); });
  wait_for_copy("0000000000000001-1", 7);
  a_->stop();
  cluster_.wait_for_event("node-lost");
  EXPECT_EQ(cluster_.get("/v1/jobs/train/logs").body, "before\n");
  expect_error(cluster_.get("/v1/jobs/train/logs?offset=7"), 503, "unavailable", 5);
}

TEST_F(CopiedOutputTest, DamagedCopyIsAnError) {
  move();
  wait_for_copy("0000000000000001-1", 7);
  a_->stop();
  cluster_.wait_for_event("node-lost");
  std::filesystem::resize_file(copy_of("0000000000000001-1"), 16 + 3);
  EXPECT_EQ(cluster_.get("/v1/jobs/train/logs").body, "bef");
  expect_error(cluster_.get("/v1/jobs/train/logs?offset=3"), 500, "internal", 6);
}

TEST_F(CopiedOutputTest, CopyIsRemovedWithItsJob) {
  a_->post([this] { a_->change(1, 1, wire::JobPhase::kExited, 0); });
  wait_for_copy("0000000000000001-1", 7);
  EXPECT_EQ(request(cluster_.api_address(), cluster_.token(), "DELETE", "/v1/jobs/train").status, 200U);
  wait_for_file("the copy stays", [this] { return !std::filesystem::exists(copy_of("0000000000000001-1")); });
}

TEST_F(CopiedOutputTest, CopyIsNotMadeForAJobThatWasNotPlacedOnTheNode) {
  b_->post([this] { b_->change(1, 1, wire::JobPhase::kExited, 0); });
  b_->post([this] { b_->change(99, 1, wire::JobPhase::kExited, 0); });
  move();
  wait_for_copy("0000000000000001-1", 7);
  wait_for_copy("0000000000000001-2", 6);
  EXPECT_FALSE(std::filesystem::exists(copy_of("0000000000000063-1")));
}

}  // namespace
}  // namespace ckpt::coordinator::test
