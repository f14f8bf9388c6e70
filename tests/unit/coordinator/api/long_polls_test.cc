// SPDX-License-Identifier: Apache-2.0
// Tests of many calls that wait for changes, next to calls that do not wait.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <future>

#include "coordinator/daemon/coordinator.h"
#include "tests/unit/coordinator/support/cluster.h"
#include "tests/unit/coordinator/support/fake_agent.h"

namespace ckpt::coordinator::test {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kPollDeadline{60};

class LongPollTest : public ::testing::Test {
 protected:
  void SetUp() override {
    rlimit limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
    cluster_.start();
  }
  std::unique_ptr<FakeAgent> agent(const std::string& node) {
    return std::make_unique<FakeAgent>(node, cluster_.agent_address(), cluster_.agent_token());
  }
  void wait_on(const std::string& target, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
      polls_.push_back(begin_request(cluster_.api_address(), cluster_.token(), target));
  }
  void wait_until_waiting(unsigned wanted) {
    const auto deadline = std::chrono::steady_clock::now() + kPollDeadline;
    unsigned waiting = wanted + 1;
    while (waiting != wanted) {
      cluster_.on_io([&](Coordinator& c, const auto&) { waiting = c.http().waiting(); });
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << waiting << " calls wait, not " << wanted;
    }
  }
  std::uint64_t newest_event() { return cluster_.get("/v1/events").json()["next"].get<std::uint64_t>(); }

  Cluster cluster_;
  std::vector<UniqueFd> polls_;
};

void expect_short_calls(Cluster& cluster) {
  EXPECT_EQ(cluster.get("/v1/jobs").status, 200U);
  EXPECT_EQ(cluster.post("/v1/migrations/m1/abort").status, 202U);
  EXPECT_EQ(cluster.post("/v1/drains", R"({"place":"node-b"})").status, 202U);
}

TEST_F(LongPollTest, ShortCallsAreAnsweredDuringThreeHundredLongPolls) {
  auto a = agent("node-a");
  auto b = agent("node-b");
  a->silent_prepare = b->silent_prepare = true;
  a->start();
  b->start();
  cluster_.wait_for_event("node-ready", 2);
  ASSERT_EQ(cluster_.post("/v1/jobs", R"({"argv":["x"],"cwd":"/tmp","node":"node-a","name":"train"})").status,
            201U);
  ASSERT_EQ(cluster_.post("/v1/jobs/train/migrate").status, 202U);
  wait_on("/v1/events?follow_ms=60000&since=1000000", 300);
  const auto polls_end = std::chrono::steady_clock::now() + std::chrono::seconds(50);
  expect_short_calls(cluster_);
  EXPECT_LT(std::chrono::steady_clock::now(), polls_end) << "short calls waited for long polls to end";
}

TEST_F(LongPollTest, OneEventAnswersAThousandLongPolls) {
  wait_on("/v1/events?follow_ms=60000&since=" + std::to_string(newest_event()), 1000);
  wait_until_waiting(1000);
  EXPECT_EQ(cluster_.get("/v1/jobs").status, 200U);
  auto a = agent("node-a");
  a->start();
  wait_until_waiting(0);
  for (const UniqueFd& poll : polls_) {
    char head[16] = {};
    ASSERT_EQ(::recv(poll.get(), head, 12, MSG_WAITALL), 12);
    EXPECT_STREQ(head, "HTTP/1.1 200");
  }
}

TEST_F(LongPollTest, ADisconnectedClientHoldsNoResources) {
  auto a = agent("node-a");
  a->start();
  cluster_.wait_for_event("node-ready");
  ASSERT_EQ(cluster_.post("/v1/jobs", R"({"argv":["x"],"cwd":"/tmp","node":"node-a","name":"train"})").status,
            201U);
  wait_on("/v1/events?follow_ms=60000&since=1000000", 4);
  wait_on("/v1/jobs/train/wait?timeout_ms=60000", 4);
  wait_on("/v1/jobs/train/logs?offset=8&follow_ms=60000", 4);
  wait_until_waiting(12);
  polls_.clear();
  wait_until_waiting(0);
  EXPECT_EQ(cluster_.get("/v1/jobs/train/logs?offset=4").body, "two\n");
}

TEST_F(LongPollTest, ClosedMigrationIsReturnedImmediatelyForAnyRevision) {
  auto a = agent("node-a");
  auto b = agent("node-b");
  a->start();
  b->start();
  cluster_.wait_for_event("node-ready", 2);
  ASSERT_EQ(cluster_.post("/v1/jobs", R"({"argv":["x"],"cwd":"/tmp","node":"node-a","name":"train"})").status,
            201U);
  ASSERT_EQ(cluster_.post("/v1/jobs/train/migrate").status, 202U);
  cluster_.wait_for_event("migration-ended");
  cluster_.stop();
  cluster_.start();
  // The call is from a client that watched before the restart; revisions start again.
  auto asked = std::async(std::launch::async, [this] {
    return cluster_.get("/v1/migrations/m1/watch?timeout_ms=60000&since=1000000").json();
  });
  ASSERT_EQ(asked.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  EXPECT_FALSE(asked.get()["open"].get<bool>());
}

}  // namespace
}  // namespace ckpt::coordinator::test
