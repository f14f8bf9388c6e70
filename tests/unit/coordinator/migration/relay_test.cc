// SPDX-License-Identifier: Apache-2.0
// Tests that the coordinator accepts and relays a node's messages only for the node's own side of a
// migration.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "tests/unit/coordinator/support/cluster.h"
#include "tests/unit/coordinator/support/fake_agent.h"

namespace ckpt::coordinator::test {
namespace {

using nlohmann::json;

class RelayTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cluster_.start();
    a_ = std::make_unique<FakeAgent>("node-a", cluster_.agent_address(), cluster_.agent_token());
    b_ = std::make_unique<FakeAgent>("node-b", cluster_.agent_address(), cluster_.agent_token());
    a_->start();
    b_->start();
    cluster_.wait_for_event("node-ready", 2);
    const auto job =
        cluster_.post("/v1/jobs", R"({"argv":["./train"],"cwd":"/tmp","name":"train","node":"node-a"})");
    ASSERT_EQ(job.status, 201U) << job.body;
  }
  json migrated() {
    const auto begun = cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b"})");
    EXPECT_EQ(begun.status, 202U) << begun.body;
    const std::string path = "/v1/migrations/" + begun.json()["id"].get<std::string>() + "/watch";
    json m = begun.json();
    for (int turn = 0; turn < 100 && m.value("open", true); ++turn)
      m = cluster_
              .get(path + "?timeout_ms=30000&since=" + std::to_string(m.value("revision", std::uint64_t{0})))
              .json();
    return m;
  }
  static bool is_prepare(const wire::CommitMessage& m) {
    return std::holds_alternative<wire::Prepare>(m.body);
  }

  Cluster cluster_;
  std::unique_ptr<FakeAgent> a_;
  std::unique_ptr<FakeAgent> b_;
};

TEST_F(RelayTest, ForgedMessagesForTheCoordinatorOrTheOtherSideAreDropped) {
  std::atomic<int> forged_heard{0};
  constexpr wire::Incarnation kForged = 78;  // an incarnation that a target may have
  a_->instead = [this](const wire::CommitMessage& m) {
    if (!is_prepare(m)) return false;
    a_->send_commit(m, wire::Role::kCoordinator, wire::Role::kTarget, wire::Commit(kForged));
    a_->send_commit(m, wire::Role::kTarget, wire::Role::kCoordinator,
                    wire::Refused(wire::Reason(ErrorCode::kRefused, "forged")));
    return false;
  };
  b_->instead = [&forged_heard](const wire::CommitMessage& m) {
    const auto* commit = std::get_if<wire::Commit>(&m.body);
    if (commit != nullptr && commit->k == kForged) ++forged_heard;
    return commit != nullptr && commit->k == kForged;
  };
  EXPECT_EQ(migrated()["result"], "done");
  EXPECT_EQ(forged_heard, 0);
}

TEST_F(RelayTest, MessagesThatANodeSendsForItselfAreRelayed) {
  std::atomic<int> heard{0};
  a_->instead = [this](const wire::CommitMessage& m) {
    if (is_prepare(m)) a_->send_commit(m, wire::Role::kSource, wire::Role::kTarget, wire::Query());
    return false;
  };
  b_->instead = [&heard](const wire::CommitMessage& m) {
    const bool is_query = m.from.role == wire::Role::kSource && std::holds_alternative<wire::Query>(m.body);
    if (is_query) ++heard;
    return is_query;
  };
  EXPECT_EQ(migrated()["result"], "done");
  EXPECT_EQ(heard, 1);
}

TEST_F(RelayTest, MessagesAboutAnotherJobOrIncarnationAreNotRelayed) {
  std::atomic<int> heard{0};
  a_->instead = [this](const wire::CommitMessage& m) {
    if (!is_prepare(m)) return false;
    wire::CommitMessage other_job = m;
    ++other_job.job;
    wire::CommitMessage other_incarnation = m;
    other_incarnation.base += 2;
    for (const auto& about : {other_job, other_incarnation})
      a_->send_commit(about, wire::Role::kSource, wire::Role::kTarget, wire::Query());
    return false;
  };
  b_->instead = [&heard](const wire::CommitMessage& m) {
    const bool is_query = m.from.role == wire::Role::kSource && std::holds_alternative<wire::Query>(m.body);
    if (is_query) ++heard;
    return is_query;
  };
  EXPECT_EQ(migrated()["result"], "done");
  EXPECT_EQ(heard, 0);
}

// The target never commits, and no side follows the abort. The coordinator repeats the abort after its
// restart.
TEST_F(RelayTest, AnAbortAfterTheGrantIsRepeatedAfterARestart) {
  // The agents go on until the fixture ends.
  struct Seen {
    std::promise<void> granted;
    std::array<std::promise<void>, 2> asked;
    std::array<bool, 2> was_asked{};
    bool was_granted = false;
    std::atomic<unsigned> life{0};
  };
  const auto seen = std::make_shared<Seen>();
  a_->instead = [seen](const wire::CommitMessage& m) {
    if (!std::holds_alternative<wire::GiveUp>(m.body)) return false;
    const unsigned life = seen->life;
    if (!std::exchange(seen->was_asked.at(life), true)) seen->asked.at(life).set_value();
    return true;
  };
  b_->instead = [seen](const wire::CommitMessage& m) {
    const bool is_commit = std::holds_alternative<wire::Commit>(m.body);
    if (is_commit && !std::exchange(seen->was_granted, true)) seen->granted.set_value();
    return is_commit || std::holds_alternative<wire::GiveUp>(m.body);
  };
  const auto begun = cluster_.post("/v1/jobs/train/migrate", R"({"to":"node-b"})");
  ASSERT_EQ(begun.status, 202U) << begun.body;
  seen->granted.get_future().wait();
  const auto aborted = cluster_.post("/v1/migrations/" + begun.json()["id"].get<std::string>() + "/abort");
  ASSERT_LT(aborted.status, 300U) << aborted.body;
  seen->asked[0].get_future().wait();
  cluster_.stop();
  seen->life = 1;
  cluster_.start();
  EXPECT_EQ(seen->asked[1].get_future().wait_for(std::chrono::minutes(1)), std::future_status::ready);
}

}  // namespace
}  // namespace ckpt::coordinator::test
