// SPDX-License-Identifier: Apache-2.0
// Tests of the effect of a slow or failing disk on the handover's journal. The coordinator's loop keeps
// running, and no message is sent before its record is durable. slow_disk.h simulates the disk.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "coordinator/daemon/coordinator.h"
#include "libckpt/net/control/spawn.h"
#include "tests/unit/coordinator/support/cluster.h"
#include "tests/unit/coordinator/support/fake_agent.h"
#include "tests/unit/coordinator/support/slow_disk.h"

namespace ckpt::coordinator::test {
namespace {

using nlohmann::json;

// The messages of handovers that a node received, in order.
class Heard {
 public:
  // Records the agent's messages of handovers; the message `swallow` is not answered.
  void listen_at(FakeAgent& agent, const std::string& swallow = {}) {
    agent.instead = [this, swallow](const wire::CommitMessage& message) {
      const std::string name(wire::name_of(message.body));
      const std::lock_guard lock(mutex_);
      names_.push_back(name);
      return name == swallow;
    };
  }
  [[nodiscard]] std::vector<std::string> names() {
    const std::lock_guard lock(mutex_);
    return names_;
  }
  // Returns the messages up to the end that the coordinator reports. Repeated messages count once.
  [[nodiscard]] std::vector<std::string> story() {
    std::vector<std::string> found;
    for (const std::string& name : names()) {
      const bool known = std::find(found.begin(), found.end(), name) != found.end();
      if (!known && name != "Query") found.push_back(name);
      if (name == "Closed" || name == "Aborted") break;
    }
    return found;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> names_;
};

class HandoverJournalTest : public ::testing::Test {
 protected:
  static constexpr const char* kJournal = "journal";
  static constexpr const char* kStoreLog = "state.db-wal";

  void start() {
    cluster_.start();
    cluster_.on_io([this](Coordinator&, const auto&) { loop_ = std::this_thread::get_id(); });
    syncs_at_start_ = disk().syncs_of(loop_);
    for (auto* agent : {&a_, &b_}) {
      const std::string node = agent == &a_ ? "node-a" : "node-b";
      *agent = std::make_unique<FakeAgent>(node, cluster_.agent_address(), cluster_.agent_token());
    }
  }
  // Starts the nodes with "train" on node-a, which is to be moved, and "other" on node-b.
  void start_nodes(std::size_t environment_bytes = 0) {
    a_->start();
    b_->start();
    cluster_.wait_for_event("node-ready", 2);
    const json train = {{"argv", {"x"}},
                        {"cwd", "/tmp"},
                        {"name", "train"},
                        {"node", "node-a"},
                        {"env", {{"PAD", std::string(environment_bytes, 'x')}}}};
    const json other = {{"argv", {"x"}}, {"cwd", "/tmp"}, {"name", "other"}, {"node", "node-b"}};
    for (const json& job : {train, other}) {
      const auto started = cluster_.post("/v1/jobs", job.dump());
      ASSERT_EQ(started.status, 201U) << started.body;
    }
  }
  void TearDown() override {
    disk().fail(0);
    disk().fail_writes(0, {});
    disk().hold(false);
  }
  std::future<HttpAnswer> post_later(const std::string& target, const std::string& body = "{}") {
    return std::async(std::launch::async, [this, target, body] { return cluster_.post(target, body); });
  }
  std::future<HttpAnswer> migrate_later() { return post_later("/v1/jobs/train/migrate"); }
  template <class Condition>
  static void wait_until(Condition condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!condition()) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  }
  json closed(const std::string& id) {
    json m;
    wait_until([&] {
      m = cluster_.get("/v1/migrations/" + id).json();
      return !m.value("open", true);
    });
    return m;
  }
  // Makes sure that the messages sent to the job's node before this call have arrived.
  void reach(const std::string& job) { ASSERT_EQ(cluster_.get("/v1/jobs/" + job + "/logs").status, 200U); }
  template <class Answer>
  static bool is_pending(const std::future<Answer>& answer) {
    return answer.wait_for(std::chrono::seconds(0)) == std::future_status::timeout;
  }

  // Waits for copies of the store's log. A large log is copied after a sync, and the copy may lock out the
  // loop. Two changes are made durable one after the other; then the copy after the first change is over.
  void finish_copies_of_the_store() {
    for (const std::string call : {"pause", "resume"})
      ASSERT_EQ(cluster_.post("/v1/policy/" + call, R"({"node":"node-b"})").status, 200U);
  }

  static control::Task<> resolve_at_source(MigrationRunner& migrations, std::promise<Result<void>>& done) {
    auto resolved = co_await migrations.resolve(1, wire::Side::kSource);
    done.set_value(std::move(resolved));
  }

  // Moves the job until `number` migrations are done, one after the other.
  void migrate_to(int number) {
    for (; moved_ < number; ++moved_) {
      ASSERT_EQ(migrate_later().get().status, 202U);
      ASSERT_EQ(closed("m" + std::to_string(moved_ + 1))["result"], "done");
    }
  }

  // Eleven of these plans are more than an uncompacted journal may contain.
  static constexpr std::size_t kLargePlan = 400'000;
  static constexpr int kJustBelow = 10;

  // The recorders outlive the agents that fill them.
  Heard at_source_;
  Heard at_target_;
  Cluster cluster_;
  std::unique_ptr<FakeAgent> a_;
  std::unique_ptr<FakeAgent> b_;
  std::thread::id loop_;
  int syncs_at_start_ = 0;
  int moved_ = 0;
};

TEST_F(HandoverJournalTest, NoRecordIsSyncedOnTheEventLoop) {
  start();
  start_nodes();
  EXPECT_EQ(migrate_later().get().status, 202U);
  EXPECT_EQ(closed("m1")["result"], "done");
  EXPECT_EQ(disk().syncs_of(loop_), syncs_at_start_);
}

TEST_F(HandoverJournalTest, MigrationIsAnnouncedAfterItsBeginIsDurable) {
  start();
  at_source_.listen_at(*a_);
  start_nodes();
  disk().hold(true, kJournal);
  auto migrate = migrate_later();
  ASSERT_TRUE(disk().wait_for_a_sync());
  EXPECT_EQ(cluster_.get("/v1/migrations/m1").json()["state"], "preparing") << "the loop stands still";
  reach("train");
  EXPECT_EQ(at_source_.names(), std::vector<std::string>{});
  EXPECT_TRUE(is_pending(migrate)) << "what may be lost was said to have begun";
  disk().hold(false);
  EXPECT_EQ(migrate.get().status, 202U);
  EXPECT_EQ(closed("m1")["result"], "done");
  EXPECT_EQ(at_source_.names().front(), "Prepare");
}

TEST_F(HandoverJournalTest, EventsDuringAJournalWriteAreHandledAfterwardsInOrder) {
  start();
  at_source_.listen_at(*a_, "GiveUp");
  at_target_.listen_at(*b_, "Commit");
  a_->instead = [this, next = a_->instead](const wire::CommitMessage& message) {
    // GRANTED is the next record, so the disk is held from here on.
    if (std::holds_alternative<wire::Start>(message.body)) disk().hold(true, kJournal);
    return next(message);
  };
  start_nodes();
  ASSERT_EQ(migrate_later().get().status, 202U);
  ASSERT_TRUE(disk().wait_for_a_sync());
  std::promise<Result<void>> resolved;
  auto resolve = resolved.get_future();
  cluster_.on_io([&](Coordinator& c, const auto& executor) {
    ASSERT_TRUE(c.migration_runner().abort(1, "the test wants it"));
    control::spawn(executor, "resolve", resolve_at_source(c.migration_runner(), resolved));
  });
  EXPECT_EQ(cluster_.get("/v1/migrations/m1").json()["state"], "precopy") << "the loop stands still";
  EXPECT_TRUE(is_pending(resolve));
  reach("other");
  EXPECT_EQ(at_target_.story(), (std::vector<std::string>{"Prepare", "Start"}));
  disk().hold(false);
  EXPECT_TRUE(resolve.get());
  EXPECT_EQ(closed("m1")["result"], "interrupted");
  wait_until([&] { return at_target_.story().size() >= 5; });
  EXPECT_EQ(at_target_.story(), (std::vector<std::string>{"Prepare", "Start", "Commit", "GiveUp", "Closed"}));
}

TEST_F(HandoverJournalTest, AbortIsAnsweredAfterTheAbortIsDurable) {
  start();
  at_source_.listen_at(*a_);
  a_->silent_prepare = true;
  start_nodes();
  ASSERT_EQ(migrate_later().get().status, 202U);
  disk().hold(true, kJournal);
  auto abort = post_later("/v1/migrations/m1/abort");
  ASSERT_TRUE(disk().wait_for_a_sync());
  EXPECT_EQ(cluster_.get("/v1/migrations/m1").json()["state"], "preparing");
  reach("train");
  EXPECT_EQ(at_source_.story(), std::vector<std::string>{"Prepare"});
  EXPECT_TRUE(is_pending(abort)) << "what may be lost was said to be aborted";
  disk().hold(false);
  const HttpAnswer answer = abort.get();
  EXPECT_EQ(answer.status, 202U);
  EXPECT_EQ(answer.json()["result"], "interrupted") << answer.body;
}

TEST_F(HandoverJournalTest, MigrationRefusedByAFullDiskIsClosedWithoutAnyChange) {
  start();
  at_source_.listen_at(*a_);
  start_nodes();
  disk().fail_writes(ENOSPC, kJournal);
  const auto refused = migrate_later().get();
  EXPECT_EQ(refused.status, 409U) << refused.body;
  EXPECT_NE(refused.body.find("No space for the journal"), std::string::npos) << refused.body;
  const json m = cluster_.get("/v1/migrations/m1").json();
  EXPECT_EQ(m["open"], false) << m;
  EXPECT_EQ(m["result"], "refused") << m;
  EXPECT_NE(m["error"].get<std::string>().find("No space for the journal"), std::string::npos) << m;
  reach("train");
  EXPECT_EQ(at_source_.names(), std::vector<std::string>{});
  disk().fail_writes(0, {});
  EXPECT_EQ(migrate_later().get().status, 202U);
  EXPECT_EQ(closed("m2")["result"], "done");
}

TEST_F(HandoverJournalTest, MigrationWithAFailedGrantRecordReturnsToItsSource) {
  start();
  at_target_.listen_at(*b_);
  a_->instead = [](const wire::CommitMessage& message) {
    if (std::holds_alternative<wire::Start>(message.body)) disk().fail_writes(ENOSPC, kJournal);
    return false;
  };
  start_nodes();
  const int before = disk().refused_writes();
  ASSERT_EQ(migrate_later().get().status, 202U);
  wait_until([&] { return disk().refused_writes() > before; });
  disk().fail_writes(0, {});
  const json m = closed("m1");
  EXPECT_EQ(m["result"], "refused") << m;
  wait_until([&] { return at_target_.story().size() >= 3; });
  EXPECT_EQ(at_target_.story(), (std::vector<std::string>{"Prepare", "Start", "Aborted"}));
}

// A compaction retains the newest record of each migration. These records alone exceed the size of the first
// compaction, so the next compaction waits until the size has doubled.
TEST_F(HandoverJournalTest, JournalIsCompactedOffTheLoopEachTimeItsSizeDoubles) {
  start();
  start_nodes(kLargePlan);
  const int before = disk().replaced(kJournal);
  const int by_loop = disk().replaced_by(loop_);
  migrate_to(kJustBelow);
  EXPECT_EQ(disk().replaced(kJournal), before);
  migrate_to(kJustBelow + 5);
  wait_until([&] { return disk().replaced(kJournal) > before; });
  EXPECT_EQ(disk().replaced(kJournal), before + 1);
  EXPECT_EQ(disk().replaced_by(loop_), by_loop);
  cluster_.stop();
  cluster_.start();
  EXPECT_EQ(closed("m" + std::to_string(moved_))["result"], "done");
}

// The journal's records are removed because the store contains their information. A power loss must not
// remove that information.
TEST_F(HandoverJournalTest, CompactionWaitsForTheStore) {
  start();
  disk().spare(loop_);  // allows syncs of the header of the store's log
  start_nodes(kLargePlan);
  migrate_to(kJustBelow);
  finish_copies_of_the_store();
  const int before = disk().replaced(kJournal);
  disk().hold(true, kStoreLog);
  auto last = migrate_later();
  EXPECT_EQ(closed("m" + std::to_string(kJustBelow + 1))["result"], "done");
  EXPECT_EQ(disk().replaced(kJournal), before);
  disk().hold(false);
  EXPECT_EQ(last.get().status, 202U);
  wait_until([&] { return disk().replaced(kJournal) > before; });
}

TEST_F(HandoverJournalTest, RecordWithAnUnknownOutcomeIsFatalAndNoMessageFollows) {
  std::promise<void> ended;
  cluster_.expect_fatal([&](const Error&) { ended.set_value(); });
  start();
  at_target_.listen_at(*b_);
  a_->instead = [](const wire::CommitMessage& message) {
    if (std::holds_alternative<wire::Start>(message.body)) disk().fail(EIO, kJournal);
    return false;
  };
  start_nodes();
  ASSERT_EQ(migrate_later().get().status, 202U);
  ASSERT_EQ(ended.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
  EXPECT_EQ(cluster_.get("/v1/migrations/m1").json()["state"], "precopy");
  reach("other");
  EXPECT_EQ(at_target_.story(), (std::vector<std::string>{"Prepare", "Start"}));
}

}  // namespace
}  // namespace ckpt::coordinator::test
