// SPDX-License-Identifier: Apache-2.0
// Tests of the rows of a move of ranks after the barrier. The parties answer the coordinator as agents do
// until both sources wait. From there on each test states what happened.
#include <gmock/gmock.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "coordinator/daemon/coordinator.h"
#include "libckpt/base/clock.h"
#include "tests/unit/coordinator/gangs/gang_moves_fixture.h"

namespace ckpt::coordinator::test {
namespace {

using nlohmann::json;

// A counter of changes, on which a test can wait for the next change.
class Changes {
 public:
  void note() {
    const std::lock_guard lock(mutex_);
    ++count_;
    changed_.notify_all();
  }
  // Waits until `is_so` is true. It is checked after each change, and for the last time after a minute.
  // Returns the last result.
  bool wait_until(const std::function<bool()>& is_so) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (true) {
      const std::uint64_t before = count();
      if (is_so()) return true;
      std::unique_lock lock(mutex_);
      if (!changed_.wait_until(lock, deadline, [&] { return count_ != before; })) break;
    }
    return is_so();
  }

 private:
  std::uint64_t count() {
    const std::lock_guard lock(mutex_);
    return count_;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t count_ = 0;
};

class GangMoveOutcomesTest : public GangMovesTest {
 protected:
  // Starts the ranks and moves both. Returns once both sources wait at their barriers.
  void begin_move() {
    for (const char* name : {"node-a", "node-b", "node-c", "node-d"}) {
      FakeAgent& agent = node(name);
      agent.on_gang = [this, &agent](const wire::CommitMessage& m) { answer(agent, m); };
    }
    start_ranks();
    cluster_.on_io([this](Coordinator& coordinator, const control::asio::any_io_executor&) {
      coordinator.jobs().changed().subscribe([changes = changes_] { changes->note(); });
      coordinator.migrations().changed().subscribe([changes = changes_] { changes->note(); });
      coordinator.migrations().moved().subscribe([changes = changes_](JobId) { changes->note(); });
    });
    const auto begun = cluster_.post("/v1/jobs/ranks/migrate", R"({"to":"node-c,node-d"})");
    ASSERT_EQ(begun.status, 202U) << begun.body;
    migration_ = begun.json()["id"].get<std::string>();
    ASSERT_TRUE(wait_until([this] {
      const std::lock_guard lock(mutex_);
      return at_barrier_.size() == 2;
    })) << "the sources were not granted the pause";
  }
  // Makes the node send the coordinator a message of its party with this body.
  void state(const std::string& of_node, wire::Role role, std::uint32_t rank, wire::Body body) {
    FakeAgent& agent = node(of_node);
    agent.post([this, &agent, role, rank, body = std::move(body)] {
      const std::lock_guard lock(mutex_);
      if (const auto* ran = std::get_if<wire::Ran>(&body)) {
        ran_.insert(rank);
        agent.change(jobs_.at(rank), ran->k, wire::JobPhase::kRunning);
      }
      if (std::holds_alternative<wire::Released>(body) && ran_.contains(rank))
        agent.change(jobs_.at(rank), order_.base, wire::JobPhase::kMoved);
      agent.send(wire::CommitMessage(order_.migration, order_.job, order_.base, wire::Party(role, rank),
                                     wire::Party(), body));
    });
  }
  // Makes the first target commit, and the other target report VERIFIED. Returns once the rows show both.
  void commit() {
    state("node-d", wire::Role::kTarget, 1, wire::Verified());
    state("node-c", wire::Role::kTarget, 0, wire::Committed(order_.base + 1));
    EXPECT_TRUE(wait_until([this] { return all_rows("state", "committed"); })) << rows();
  }
  json rows() { return cluster_.get("/v1/migrations").json(); }
  bool all_rows(const char* key, const json& value) {
    const json shown = rows();
    for (const json& row : shown)
      if (row[key] != value) return false;
    return shown.size() == 2;
  }
  bool is_closed(const char* result) { return all_rows("open", false) && all_rows("result", result); }
  json gpus() { return job("ranks")["gpus"]; }
  // Checks that no place is claimed for a move that has no rows yet.
  void expect_no_claims() {
    cluster_.on_io([](Coordinator& coordinator, const control::asio::any_io_executor&) {
      EXPECT_TRUE(coordinator.migrations().claims().empty());
    });
  }
  bool wait_until(const std::function<bool()>& is_so) { return changes_->wait_until(is_so); }

  std::string migration_;

 private:
  // Answers a message as the party does that receives it. Runs on the agent's thread.
  void answer(FakeAgent& agent, const wire::CommitMessage& m) {
    const auto reply = [&](wire::Body body) {
      agent.send(wire::CommitMessage(m.migration, m.job, m.base, m.to, wire::Party(), std::move(body)));
    };
    if (std::holds_alternative<wire::Prepare>(m.body)) {
      note_order(m);
      if (m.to.role == wire::Role::kTarget)
        agent.change(job_of_rank(m.to.rank), m.base + 1, wire::JobPhase::kStandby);
      return reply(wire::Prepared());
    }
    if (m.to.role == wire::Role::kSource)
      as_source(m, reply);
    else
      as_target(m, reply);
  }
  void as_source(const wire::CommitMessage& m, const std::function<void(wire::Body)>& reply) {
    if (std::holds_alternative<wire::Start>(m.body)) reply(wire::Precopied());
    if (std::holds_alternative<wire::Granted>(m.body)) {
      reply(wire::Waiting());
      note_at_barrier(m.to.rank);
    }
    if (const auto* closed = std::get_if<wire::Closed>(&m.body)) {
      if (closed->side == wire::Side::kTarget)
        reply(wire::Released());
      else
        reply(wire::Resumed(closed->k));
    }
    if (std::holds_alternative<wire::Restore>(m.body)) reply(wire::Fenced());
  }
  static void as_target(const wire::CommitMessage& m, const std::function<void(wire::Body)>& reply) {
    if (const auto* granted = std::get_if<wire::Granted>(&m.body))
      reply(wire::LeaseRequest(granted->k, now_ns()));
    if (const auto* order = std::get_if<wire::GiveUp>(&m.body))
      reply(wire::Relinquished(true, order->reason));
    if (std::holds_alternative<wire::Restore>(m.body))
      reply(wire::Relinquished(false, wire::Reason(ErrorCode::kAborted, "the move is lost")));
    const auto* closed = std::get_if<wire::Closed>(&m.body);
    if (closed != nullptr && closed->side == wire::Side::kTarget) reply(wire::Owns(closed->k));
  }
  void note_at_barrier(std::uint32_t rank) {
    {
      const std::lock_guard lock(mutex_);
      at_barrier_.insert(rank);
    }
    changes_->note();
  }
  void note_order(const wire::CommitMessage& m) {
    const std::lock_guard lock(mutex_);
    order_ = m;
    if (!m.info) return;
    const auto plan = gang::decode_gang_plan(m.info->plan);
    ASSERT_TRUE(plan);
    for (const gang::MovedRank& moved : plan->moved) {
      const auto own = wire::decode_plan(moved.plan);
      ASSERT_TRUE(own);
      jobs_[moved.rank] = own->spec.job;
    }
  }
  std::uint64_t job_of_rank(std::uint32_t rank) {
    const std::lock_guard lock(mutex_);
    return jobs_.at(rank);
  }

  // The changes of the coordinator's tables and of the sources. The coordinator outlives the test's members.
  std::shared_ptr<Changes> changes_ = std::make_shared<Changes>();
  std::mutex mutex_;  // guards the members below
  wire::CommitMessage order_;
  std::map<std::uint32_t, std::uint64_t> jobs_;  // the job of each rank
  std::set<std::uint32_t> at_barrier_;           // sources that wait
  std::set<std::uint32_t> ran_;                  // ranks that have run at their targets
};

TEST_F(GangMoveOutcomesTest, AnAbortAfterTheBarrierLeavesTheRanksAtTheirSources) {
  ASSERT_NO_FATAL_FAILURE(begin_move());
  expect_no_claims();  // the rows count in place of the claims
  EXPECT_TRUE(all_rows("state", "granted")) << rows();
  const auto aborted = cluster_.post("/v1/migrations/" + migration_ + "/abort", R"({"reason":"not today"})");
  EXPECT_LT(aborted.status, 300U) << aborted.body;
  EXPECT_TRUE(wait_until([this] { return is_closed("interrupted"); })) << rows();
  for (const json& row : rows())
    EXPECT_THAT(row["error"].get<std::string>(), testing::HasSubstr("not today")) << row;
  EXPECT_EQ(gpus(), json::parse(R"(["node-a:0","node-b:0"])"));
  EXPECT_EQ(job("ranks")["incarnation"], 1);
  // The ranks can be moved again once all parties know the outcome.
  EXPECT_TRUE(wait_until([this] {
    const auto plan = cluster_.post("/v1/jobs/ranks/migrate", R"({"to":"node-c,node-d","dry_run":true})");
    return plan.status == 200 && plan.json()["possible"].get<bool>();
  }));
  expect_no_claims();
}

TEST_F(GangMoveOutcomesTest, ACommittedMoveShowsTheRanksAtTheirTargets) {
  ASSERT_NO_FATAL_FAILURE(begin_move());
  commit();
  EXPECT_EQ(gpus(), json::parse(R"(["node-a:0","node-b:0"])")) << "no target runs yet";
  state("node-c", wire::Role::kTarget, 0, wire::Ran(2));
  EXPECT_TRUE(wait_until([this] { return gpus()[0] == "node-c:0"; })) << job("ranks");
  EXPECT_EQ(gpus()[1], "node-b:0") << "each rank moves once its own target runs";
  state("node-d", wire::Role::kTarget, 1, wire::Ran(2));
  EXPECT_TRUE(wait_until([this] { return gpus()[1] == "node-d:0"; })) << job("ranks");
  EXPECT_TRUE(all_rows("open", true)) << rows();
  state("node-a", wire::Role::kSource, 0, wire::Released());
  state("node-b", wire::Role::kSource, 1, wire::Released());
  EXPECT_TRUE(wait_until([this] { return is_closed("done"); })) << rows();
  EXPECT_EQ(gpus(), json::parse(R"(["node-c:0","node-d:0"])"));
  EXPECT_EQ(job("ranks")["incarnation"], 2);
  expect_no_claims();
}

// One source has freed its memory, and then the target of the other rank gives up. Neither side can continue.
TEST_F(GangMoveOutcomesTest, MoveIsLostIfNeitherSideCanContinue) {
  ASSERT_NO_FATAL_FAILURE(begin_move());
  commit();
  state("node-a", wire::Role::kSource, 0, wire::Released());
  state("node-d", wire::Role::kTarget, 1,
        wire::Relinquished(false, wire::Reason(ErrorCode::kDevice, "the instance has died")));
  cluster_.wait_for_event("gang-lost");
  EXPECT_TRUE(wait_until([this] { return is_closed("lost"); })) << rows();
  for (const json& row : rows())
    EXPECT_THAT(row["error"].get<std::string>(), testing::HasSubstr("from its images")) << row;
  expect_no_claims();
}

}  // namespace
}  // namespace ckpt::coordinator::test
