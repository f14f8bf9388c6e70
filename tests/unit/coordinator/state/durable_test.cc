// SPDX-License-Identifier: Apache-2.0
// Tests of the effect of the disk on a coordinator. The coordinator's loop never syncs a file, and its
// messages are durable before they are sent. slow_disk.h simulates the disk.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <filesystem>
#include <future>
#include <map>
#include <thread>
#include <vector>

#include "coordinator/daemon/coordinator.h"
#include "tests/unit/coordinator/support/cluster.h"
#include "tests/unit/coordinator/support/fake_agent.h"
#include "tests/unit/coordinator/support/slow_disk.h"

namespace ckpt::coordinator::test {
namespace {

constexpr std::chrono::seconds kAnswerTime{30};

class DurableTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cluster_.start();
    cluster_.on_io([this](Coordinator&, const auto&) { loop_ = std::this_thread::get_id(); });
    at_start_ = disk().syncs_of(loop_);
    a_ = agent("node-a");
    for (std::uint32_t gpu = 1; gpu < kGpus; ++gpu) {
      a_->inventory.gpus.push_back(a_->inventory.gpus.front());
      a_->inventory.gpus.back().index = gpu;
    }
    b_ = agent("node-b");
    a_->start();
    b_->start();
    cluster_.wait_for_event("node-ready", 2);
  }
  void TearDown() override {
    disk().fail(0);
    disk().hold(false);
  }
  std::unique_ptr<FakeAgent> agent(const std::string& name) {
    return std::make_unique<FakeAgent>(name, cluster_.agent_address(), cluster_.agent_token());
  }
  std::future<HttpAnswer> post_later(const std::string& target, const std::string& body) {
    return std::async(std::launch::async, [this, target, body] { return cluster_.post(target, body); });
  }
  static std::string cordon_of(std::uint32_t gpu) {
    return R"({"place":"node-a:)" + std::to_string(gpu) + R"(","reason":"test"})";
  }
  std::future<HttpAnswer> cordon_later(std::uint32_t gpu) { return post_later("/v1/cordon", cordon_of(gpu)); }
  // Returns the number of syncs on the loop's thread since the coordinator was started.
  int syncs_on_loop() { return disk().syncs_of(loop_) - at_start_; }
  // Checks whether the coordinator answers within a time limit that a blocked loop would exceed.
  bool answers() {
    const UniqueFd asked = begin_request(cluster_.api_address(), cluster_.token(), "/v1/status");
    timeval limit{kAnswerTime.count(), 0};
    ::setsockopt(asked.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    char byte = 0;
    return ::recv(asked.get(), &byte, 1, 0) == 1;
  }

  static constexpr std::uint32_t kGpus = 12;
  Cluster cluster_;
  std::unique_ptr<FakeAgent> a_;
  std::unique_ptr<FakeAgent> b_;
  std::thread::id loop_;
  int at_start_ = 0;
};

TEST_F(DurableTest, EventLoopSyncsNoFile) {
  const auto job = cluster_.post("/v1/jobs", R"({"argv":["./train"],"cwd":"/tmp","name":"train"})");
  ASSERT_EQ(job.status, 201U) << job.body;
  ASSERT_EQ(cluster_.post("/v1/cordon", cordon_of(1)).status, 200U);
  ASSERT_EQ(cluster_.post("/v1/jobs/train/stop").status, 202U);
  cluster_.wait_for_event("job-ended");
  EXPECT_EQ(syncs_on_loop(), 0);
}

TEST_F(DurableTest, EventLoopContinuesWhileTheDiskHangs) {
  disk().hold(true);
  auto cordon = cordon_later(0);
  ASSERT_TRUE(disk().wait_for_a_sync());
  EXPECT_TRUE(answers());
  EXPECT_EQ(cordon.wait_for(std::chrono::seconds(0)), std::future_status::timeout)
      << "what may be lost was said to be done";
  disk().hold(false);
  EXPECT_EQ(cordon.get().status, 200U);
}

TEST_F(DurableTest, PendingChangesShareASync) {
  disk().hold(true);
  auto first = cordon_later(0);
  ASSERT_TRUE(disk().wait_for_a_sync());
  constexpr std::uint32_t kMore = kGpus - 1;
  std::vector<std::future<HttpAnswer>> more;
  for (std::uint32_t gpu = 1; gpu <= kMore; ++gpu) more.push_back(cordon_later(gpu));
  while (cluster_.get("/v1/cordons").json().size() <= kMore) {
  }
  const int before = disk().syncs();
  disk().hold(false);
  EXPECT_EQ(first.get().status, 200U);
  for (auto& answer : more) EXPECT_EQ(answer.get().status, 200U);
  EXPECT_LE(disk().syncs() - before, 3);
}

TEST_F(DurableTest, ChangeRefusedByTheDiskIsAnsweredWithTheError) {
  std::uint32_t gpu = 0;
  for (const auto& [error, text] :
       std::map<int, std::string>{{EIO, "Input/output error"}, {ENOSPC, "No space left on device"}}) {
    disk().fail(error);
    const auto refused = cluster_.post("/v1/cordon", cordon_of(gpu++));
    EXPECT_EQ(refused.status, 500U);
    // After a failure the log restarts. SQLite syncs the log's header and does not pass the reason on.
    const bool says_why = refused.body.find(text) != std::string::npos ||
                          refused.body.find("disk I/O error") != std::string::npos;
    EXPECT_TRUE(says_why) << refused.body;
    EXPECT_TRUE(answers());
    disk().fail(0);
    EXPECT_EQ(cluster_.post("/v1/cordon", cordon_of(gpu++)).status, 200U);
  }
}

TEST_F(DurableTest, NodeReceivesAnOrderAfterTheOrderIsDurable) {
  disk().hold(true);
  auto job = post_later("/v1/jobs", R"({"argv":["./train"],"cwd":"/tmp","name":"train"})");
  ASSERT_TRUE(disk().wait_for_a_sync());
  while (cluster_.get("/v1/jobs").json().empty()) {
  }
  EXPECT_EQ(a_->starts() + b_->starts(), 0U);
  disk().hold(false);
  EXPECT_EQ(job.get().status, 201U);
  EXPECT_EQ(a_->starts() + b_->starts(), 1U);
}

// The message to a node also waits for the disk, and is sent when the disk works again.
TEST_F(DurableTest, StopThatWasNotDurableIsSentLater) {
  ASSERT_EQ(
      cluster_.post("/v1/jobs", R"({"argv":["./train"],"cwd":"/tmp","name":"train","node":"node-a"})").status,
      201U);
  disk().fail(EIO);
  EXPECT_EQ(cluster_.post("/v1/jobs/train/stop").status, 500U);
  disk().fail(0);
  EXPECT_EQ(cluster_.post("/v1/cordon", cordon_of(1)).status, 200U);
  EXPECT_EQ(cluster_.get("/v1/jobs/train").json()["state"], "stopping");
  a_->set_free(1 << 20);  // the agent sends an inventory
  cluster_.wait_for_event("job-ended");
}

TEST_F(DurableTest, PolicyPauseThatWasNotDurableIsSentLater) {
  disk().fail(EIO);
  EXPECT_EQ(cluster_.post("/v1/policy/pause", R"({"node":"node-a","reason":"test"})").status, 500U);
  disk().fail(0);
  a_->wait_for_settings(0, true);
}

TEST_F(DurableTest, StoreLogIsBoundedAndOnlyItsHeaderIsSyncedOnTheLoop) {
  constexpr int kRounds = 12;
  constexpr int kEvents = 400;
  constexpr std::size_t kEventBytes = 8'000;  // two pages per event, each event in its own transaction
  const std::string log = cluster_.folder() + "/coordinator/state.db-wal";
  std::uintmax_t max_bytes = 0;
  for (int round = 0; round < kRounds; ++round) {
    cluster_.on_io([&](Coordinator& coordinator, const auto&) {
      Event event;
      event.text.assign(kEventBytes, 'x');
      for (int i = 0; i < kEvents; ++i) ASSERT_TRUE(coordinator.store().add(event));
    });
    ASSERT_EQ(cluster_.post("/v1/cordon", cordon_of(static_cast<std::uint32_t>(round))).status, 200U);
    max_bytes = std::max(max_bytes, std::filesystem::file_size(log));
  }
  EXPECT_LT(max_bytes, 3 * StoreLog::kMaxLogBytes);
  // There is one sync each time that the log restarts; some forty megabytes were written.
  EXPECT_LE(syncs_on_loop(), kRounds);
}

}  // namespace
}  // namespace ckpt::coordinator::test
