// SPDX-License-Identifier: Apache-2.0
// Tests of moves of ranks, with nodes that speak the control messages and do nothing.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>

#include "coordinator/daemon/coordinator.h"
#include "tests/unit/coordinator/gangs/gang_moves_fixture.h"

namespace ckpt::coordinator::test {
namespace {

using nlohmann::json;

// Each node answers only once all nodes were queried. If they were queried one after the other, none would
// answer in time.
TEST_F(GangMovesTest, AllRanksAreQueriedConcurrently) {
  waits_for_ = 2;
  node("node-c").silent_prepare = true;
  start_ranks();
  const auto begun = cluster_.post("/v1/jobs/ranks/migrate", R"({"to":"node-c,node-d"})");
  EXPECT_EQ(begun.status, 202U) << begun.body;
}

// The dry run queries the nodes as the move does.
TEST_F(GangMovesTest, ADryRunIsRefusedLikeTheMove) {
  for (const char* name : {"node-a", "node-b", "node-c", "node-d"})
    node(name).inventory.networks = {wire::DataNetwork("fast", "10.0.0.1", wire::LaneTransport::kTls)};
  start_ranks();
  FakeAgent& target = node("node-c");
  target.on_other = [&target](const wire::FrameHeader& header, std::span<const std::byte> body) {
    if (header.type != wire::FrameType::kListenForCheck) return;
    wire::Reply reply;
    reply.request_id = wire::decode<wire::ListenForCheck>(body).value().request_id;
    reply.set_error(Error(ErrorCode::kUnavailable, "The port is taken"));
    target.send(reply);
  };
  const auto plan = cluster_.post("/v1/jobs/ranks/migrate", R"({"to":"node-c","ranks":[0],"dry_run":true})");
  ASSERT_EQ(plan.status, 200U) << plan.body;
  EXPECT_FALSE(plan.json()["possible"].get<bool>()) << plan.body;
  EXPECT_TRUE(plan.json()["to"].is_null()) << plan.body;
  EXPECT_THAT(plan.json()["reason"].get<std::string>(), testing::HasSubstr("cannot reach node-c"));
}

// The dry run of a drain plans the ranks at the place as one move. Their places count for the jobs after
// them.
TEST_F(GangMovesTest, ADryRunOfADrainReportsThePlacesAndThePausesOfRanks) {
  node("node-a").pause_between_nodes_ns = 9'500'000;
  start_ranks();
  const auto solo =
      cluster_.post("/v1/jobs", R"({"argv":["x"],"cwd":"/tmp","node":"node-a","name":"solo","priority":-1})");
  ASSERT_EQ(solo.status, 201U) << solo.body;
  const json plan = cluster_.post("/v1/drains", R"({"place":"node-a","dry_run":true})").json();
  ASSERT_EQ(plan["jobs"].size(), 2U) << plan;
  const json& rank = plan["jobs"][0];
  EXPECT_NE(rank["name"], "solo") << plan;
  EXPECT_TRUE(rank["possible"].get<bool>()) << plan;
  EXPECT_EQ(rank["expected_pause_ms"], 9.5) << plan;
  EXPECT_EQ(rank["expected_pause_from"], "estimate") << plan;
  EXPECT_TRUE(plan["jobs"][1]["possible"].get<bool>()) << plan;
  EXPECT_NE(plan["jobs"][1]["to"], rank["to"]) << plan;
}

TEST_F(GangMovesTest, DryRunOfADrainPlansDifferentGpusForRanksAndForEarlierJobs) {
  start_ranks();
  const auto solo =
      cluster_.post("/v1/jobs", R"({"argv":["x"],"cwd":"/tmp","node":"node-a","name":"solo","priority":1})");
  ASSERT_EQ(solo.status, 201U) << solo.body;
  const json plan = cluster_.post("/v1/drains", R"({"place":"node-a","dry_run":true})").json();
  ASSERT_EQ(plan["jobs"].size(), 2U) << plan;
  EXPECT_EQ(plan["jobs"][0]["name"], "solo") << plan;
  for (const json& job : plan["jobs"]) EXPECT_TRUE(job["possible"].get<bool>()) << plan;
  EXPECT_NE(plan["jobs"][0]["to"], plan["jobs"][1]["to"]) << plan;
}

// While the move of a rank is being prepared, it has no migration. Its place counts for other jobs as well.
TEST_F(GangMovesTest, DrainPlansNoJobOnAGpuThatARankInPreparationWillUse) {
  waits_for_ = 3;  // more than there are ranks: the preparation lasts until answer_now()
  start_ranks();
  const auto solo =
      cluster_.post("/v1/jobs", R"({"argv":["x"],"cwd":"/tmp","node":"node-a","name":"solo","priority":-1})");
  ASSERT_EQ(solo.status, 201U) << solo.body;
  const json begun = drain(R"({"place":"node-a"})");
  const json alone =
      wait_for_drain(begun["id"], [](const json& now) { return job_of(now, "solo")["to"].is_string(); });
  answer_now();
  const json both =
      wait_for_drain(begun["id"], [](const json& now) { return rank_of(now)["to"].is_string(); });
  EXPECT_NE(rank_of(both)["to"], job_of(alone, "solo")["to"]) << both;
}

TEST_F(GangMovesTest, AMoveThatCannotBeRecordedLeavesNoOpenMigration) {
  start_ranks();
  const auto only_one_row = [](Coordinator& coordinator, const control::asio::any_io_executor&) {
    const auto made = coordinator.store().database().execute(
        "CREATE TRIGGER full BEFORE INSERT ON migrations WHEN (SELECT count(*) FROM migrations) >= 1 "
        "AND NEW.id NOT IN (SELECT id FROM migrations) BEGIN SELECT RAISE(FAIL, 'the disk is full'); END");
    ASSERT_TRUE(made) << made.error().to_string();
  };
  cluster_.on_io(only_one_row);
  const auto failed = cluster_.post("/v1/jobs/ranks/migrate", R"({"to":"node-c,node-d"})");
  EXPECT_GE(failed.status, 400U) << failed.body;
  const json rows = cluster_.get("/v1/migrations").json();
  ASSERT_EQ(rows.size(), 1U) << rows;
  EXPECT_FALSE(rows[0]["open"].get<bool>()) << rows;
  EXPECT_EQ(rows[0]["result"], "refused") << rows;
  EXPECT_EQ(cluster_.post("/v1/jobs/ranks/stop").status, 202U);
  EXPECT_EQ(cluster_.get("/v1/jobs/ranks/wait?timeout_ms=30000").json()["state"], "exited");
}

// Stores the first text that it receives, for a test that waits for it on another thread. The text is empty
// if no text arrives within a minute.
class FirstText {
 public:
  void give(const std::string& text) {
    if (!is_given_.exchange(true)) text_.set_value(text);
  }
  [[nodiscard]] std::string wait() {
    std::future<std::string> text = text_.get_future();
    return text.wait_for(std::chrono::minutes(1)) == std::future_status::ready ? text.get() : std::string();
  }

 private:
  std::atomic<bool> is_given_{false};
  std::promise<std::string> text_;
};

// The node of a source states that its copy failed, to the coordinator and to its target. Only the statement
// of this gang and of this incarnation counts, and is passed on.
TEST_F(GangMovesTest, MessagesOfAnotherGangOrIncarnationAreDropped) {
  const auto reason_of_abort = std::make_shared<FirstText>();
  const auto passed_on = std::make_shared<FirstText>();
  FakeAgent& source = node("node-a");
  source.on_gang = [&source, reason_of_abort, stated = false](const wire::CommitMessage& m) mutable {
    if (const auto* aborted = std::get_if<wire::Aborted>(&m.body))
      reason_of_abort->give(aborted->reason.text);
    if (!std::holds_alternative<wire::Prepare>(m.body) || std::exchange(stated, true)) return;
    const auto state = [&source, &m](wire::JobId gang, wire::Incarnation base, const char* text) {
      const wire::Failed failed(wire::Reason(ErrorCode::kDevice, text));
      for (const wire::Party& to : {wire::Party(wire::Role::kTarget, m.to.rank), wire::Party()})
        source.send(wire::CommitMessage(m.migration, gang, base, m.to, to, failed));
    };
    state(m.job, m.base + 1, "another incarnation");
    state(m.job + 1, m.base, "another gang");
    state(m.job, m.base, "this gang");
  };
  for (const char* target : {"node-c", "node-d"})
    node(target).on_gang = [passed_on](const wire::CommitMessage& m) {
      const auto* failed = std::get_if<wire::Failed>(&m.body);
      if (failed != nullptr && m.from.role == wire::Role::kSource) passed_on->give(failed->reason.text);
    };
  start_ranks();
  const auto begun = cluster_.post("/v1/jobs/ranks/migrate", R"({"to":"node-c,node-d"})");
  ASSERT_EQ(begun.status, 202U) << begun.body;
  EXPECT_EQ(reason_of_abort->wait(), "this gang");
  EXPECT_EQ(passed_on->wait(), "this gang");
}

// A source sends a message of the other commit protocol about the migration of its own rank. The target would
// give up a rank that it prepares by a commit that it does not know.
TEST_F(GangMovesTest, MessagesOfTheOtherCommitProtocolAreNotRelayed) {
  const auto passed_on = std::make_shared<FirstText>();
  const auto relayed = std::make_shared<std::atomic<int>>(0);
  FakeAgent& source = node("node-a");
  source.on_gang = [&source, stated = false](const wire::CommitMessage& m) mutable {
    if (!std::holds_alternative<wire::Prepare>(m.body) || !m.info || std::exchange(stated, true)) return;
    const auto plan = gang::decode_gang_plan(m.info->plan);
    const auto* moved = plan ? gang::find_moved(*plan, m.to.rank) : nullptr;
    const auto own = moved == nullptr ? Result<wire::MigrationPlan>(Error(ErrorCode::kInternal, "no plan"))
                                      : wire::decode_plan(moved->plan);
    ASSERT_TRUE(own);
    source.send(wire::CommitMessage(moved->migration, own->spec.job, moved->base, wire::Role::kSource,
                                    wire::Role::kTarget, wire::Query()));
    const wire::Failed failed(wire::Reason(ErrorCode::kDevice, "the last message"));
    source.send(wire::CommitMessage(m.migration, m.job, m.base, m.to,
                                    wire::Party(wire::Role::kTarget, m.to.rank), failed));
  };
  for (const char* target : {"node-c", "node-d"}) {
    node(target).on_gang = [passed_on](const wire::CommitMessage& m) {
      if (const auto* failed = std::get_if<wire::Failed>(&m.body)) passed_on->give(failed->reason.text);
    };
    node(target).instead = [relayed](const wire::CommitMessage&) {
      ++*relayed;
      return true;
    };
  }
  start_ranks();
  const auto begun = cluster_.post("/v1/jobs/ranks/migrate", R"({"to":"node-c,node-d"})");
  ASSERT_EQ(begun.status, 202U) << begun.body;
  EXPECT_EQ(passed_on->wait(), "the last message");
  EXPECT_EQ(*relayed, 0);
}

}  // namespace
}  // namespace ckpt::coordinator::test
