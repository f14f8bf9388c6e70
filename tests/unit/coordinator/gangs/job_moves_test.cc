// SPDX-License-Identifier: Apache-2.0
// Tests that JobMoves moves one rank by its own switch and several ranks by a common move, with nodes that
// speak the control messages and do nothing.
#include <gmock/gmock.h>

#include <future>
#include <memory>

#include "coordinator/daemon/coordinator.h"
#include "libckpt/net/control/spawn.h"
#include "tests/unit/coordinator/support/nodes_fixture.h"

namespace ckpt::coordinator::test {
namespace {

template <class T>
control::Task<> keep(control::Task<Result<T>> asked, std::shared_ptr<std::promise<Result<T>>> kept) {
  Result<T> answer = co_await std::move(asked);
  kept->set_value(std::move(answer));
}

class JobMovesTest : public NodesTest {
 protected:
  void SetUp() override {
    for (const char* name : {"node-a", "node-b", "node-c", "node-d"}) node(name);
    start();
    run_job("one", "node-a");
    const auto begun = cluster_.post(
        "/v1/jobs", R"({"argv":["./train"],"cwd":"/tmp","name":"two","ranks":2,"nodes":["node-a","node-b"],
                        "env":{"MASTER_ADDR":"x","MASTER_PORT":"1"}})");
    ASSERT_EQ(begun.status, 201U) << begun.body;
  }
  JobId whole(const std::string& name) {
    JobId found = 0;
    cluster_.on_io([&](Coordinator& coordinator, const control::asio::any_io_executor&) {
      found = find_whole(coordinator.jobs(), name).value().id;
    });
    return found;
  }
  std::string why_not_movable(const std::string& name) {
    std::string reason;
    cluster_.on_io([&](Coordinator& coordinator, const control::asio::any_io_executor&) {
      reason = coordinator.job_moves().why_not_movable(find_whole(coordinator.jobs(), name).value());
    });
    return reason;
  }
  template <class T>
  Result<T> answer_of(const std::function<control::Task<Result<T>>(JobMoves&)>& what) {
    const auto kept = std::make_shared<std::promise<Result<T>>>();
    cluster_.on_io([&](Coordinator& coordinator, const control::asio::any_io_executor& executor) {
      control::spawn(executor, "a test", keep<T>(what(coordinator.job_moves()), kept));
    });
    return kept->get_future().get();
  }
  Result<JobMovePlan> dry_run(JobId id, const MigrateRequest& request) {
    return answer_of<JobMovePlan>([&](JobMoves& moves) { return moves.dry_run(id, request); });
  }
  Result<const Migration*> migrate(JobId id, const MigrateRequest& request) {
    return answer_of<const Migration*>([&](JobMoves& moves) { return moves.migrate(id, request); });
  }
  static MigrateRequest request_to(const std::string& to) {
    MigrateRequest request;
    request.to = to;
    request.timeout_ms = 10'000;
    return request;
  }
};

TEST_F(JobMovesTest, PlanListsTheRanksOfAJobAndTheirPlaces) {
  const auto one = dry_run(whole("one"), request_to("node-c"));
  ASSERT_TRUE(one) << one.error().to_string();
  EXPECT_EQ(one->moved, std::vector<std::uint32_t>{0});
  EXPECT_EQ(one->places, std::vector<Place>{Place("node-c", 0)});
  const auto two = dry_run(whole("two"), request_to("node-c,node-d"));
  ASSERT_TRUE(two) << two.error().to_string();
  EXPECT_EQ(two->moved, (std::vector<std::uint32_t>{0, 1}));
  EXPECT_EQ(two->places.size(), 2U) << two->reason;
}

TEST_F(JobMovesTest, OptionsForSeveralRanksAreRefusedForOneRank) {
  MigrateRequest ranks = request_to("node-c");
  ranks.ranks.push_back(0);
  MigrateRequest communicators = request_to("node-c");
  communicators.communicators = wire::Communicators::kInPause;
  for (const MigrateRequest& request : {ranks, communicators}) {
    const auto planned = dry_run(whole("one"), request);
    ASSERT_FALSE(planned);
    EXPECT_EQ(planned.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(planned.error().to_string(), testing::HasSubstr("only for jobs of several ranks"));
    EXPECT_EQ(migrate(whole("one"), request).error().code(), ErrorCode::kInvalidArgument);
  }
  const auto first = dry_run(whole("two"), ranks);
  ASSERT_TRUE(first) << first.error().to_string();
  EXPECT_EQ(first->moved, std::vector<std::uint32_t>{0});
}

TEST_F(JobMovesTest, AnUnknownJobIsNotFound) {
  EXPECT_EQ(dry_run(9999, request_to("auto")).error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(migrate(9999, request_to("auto")).error().code(), ErrorCode::kNotFound);
}

TEST_F(JobMovesTest, UnreachableJobReportsWhyItCannotBeMoved) {
  EXPECT_EQ(why_not_movable("one"), "");
  EXPECT_EQ(why_not_movable("two"), "");
  node("node-a").stop();
  cluster_.wait_for_event("node-lost");
  EXPECT_EQ(why_not_movable("one"), "it is unreachable");
  EXPECT_EQ(why_not_movable("two"), "rank 0 is unreachable");
}

// A dry run of a drain reports a node that it had no time to query. Nodes that are never queried are no such
// nodes.
TEST_F(JobMovesTest, NodesAreQueriedAboutAJobOfOneRankOnly) {
  cluster_.on_io([](Coordinator& coordinator, const control::asio::any_io_executor&) {
    const auto queries = [&](const char* name) {
      const WholeJob job = find_whole(coordinator.jobs(), name).value();
      return coordinator.job_moves().queries_nodes(*job.ranks.front());
    };
    EXPECT_TRUE(queries("one"));
    EXPECT_FALSE(queries("two"));
  });
}

TEST_F(JobMovesTest, AMoveOfOneRankUsesTheSwitchProtocol) {
  const auto begun = migrate(whole("one"), request_to("node-c"));
  ASSERT_TRUE(begun) << begun.error().to_string();
  const json rows = cluster_.get("/v1/migrations").json();
  ASSERT_EQ(rows.size(), 1U) << rows;
  EXPECT_EQ(rows[0]["to"], "node-c:0") << rows;
  EXPECT_TRUE(rows[0].at("gang_move").is_null()) << rows;
}

}  // namespace
}  // namespace ckpt::coordinator::test
