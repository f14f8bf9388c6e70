// SPDX-License-Identifier: Apache-2.0
// The coordinator's questions about ranks, on a node without a move of ranks. The test plays a rank's keeper.
#include "agent/migration/gangs/gang_moves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/agent/jobs/played_job.h"
#include "tests/unit/agent/migration/fake_gang.h"
#include "tests/unit/agent/migration/fake_ports.h"

namespace ckpt::agent {
namespace {

using testing::HasSubstr;

class GangMovesTest : public WithContext<PlayedJob> {
 protected:
  void SetUp() override {
    PlayedJob::SetUp();
    context_.emplace(context(*jobs_));
    node_.emplace(io_, disk_, home_.path(), *context_, link_);
  }
  gang::AskGroups question() {
    gang::AskGroups request;
    request.request_id = 5;
    request.job = request.incarnation = 1;
    request.epoch = 8;
    request.moved = {0, 65};
    return request;
  }
  void ask(gang::AskGroups request) {
    control::spawn(io_.get_executor(), "groups of a rank", node_->moves.answer_groups(std::move(request)));
  }
  // Waits for the refusal, which must be the only one, and returns its error.
  Error receive_refusal() {
    await_event(io_, "the refusal", [this] { return !link_.refused.empty(); });
    EXPECT_EQ(link_.refused.size(), 1U);
    EXPECT_EQ(link_.refused.front().first, 5U);
    EXPECT_TRUE(link_.groups.empty());
    return link_.refused.front().second;
  }
  static local::Groups one_group() {
    local::Groups groups;
    local::GroupRecord& record = groups.records.emplace_back();
    record.name.assign("world");
    record.bytes = 3;
    return groups;
  }

  FakeGangPort link_;
  std::optional<MigrationContext> context_;
  std::optional<FakeGangNode> node_;
};

TEST_F(GangMovesTest, RankIsQueriedForItsGroupsAndAnswersWithItsTickets) {
  ask(question());
  const auto asked = keeper_->receive<local::AskGroups>("the question");
  EXPECT_EQ(asked.body.epoch, 8U);
  EXPECT_EQ(asked.body.moved[0], 1U);
  EXPECT_EQ(asked.body.moved[1], 2U);
  keeper_->answer(asked.request, one_group());
  local::GroupsEnd end;
  end.knows_gang = 1;
  keeper_->answer(asked.request, end);
  await_event(io_, "the answer", [this] { return !link_.groups.empty(); });
  const gang::RankGroups& answer = link_.groups.front();
  EXPECT_EQ(answer.request_id, 5U);
  EXPECT_TRUE(answer.knows_gang);
  ASSERT_EQ(answer.groups.size(), 1U);
  EXPECT_EQ(answer.groups.front().group, "world");
  EXPECT_EQ(answer.groups.front().ticket.size(), 3U);
}

TEST_F(GangMovesTest, RankThatRunsAsAnotherIncarnationIsNotQueried) {
  auto request = question();
  request.incarnation = 2;
  ask(request);
  EXPECT_EQ(receive_refusal().code(), ErrorCode::kNotFound);
  EXPECT_FALSE(keeper_->is_asked());
}

TEST_F(GangMovesTest, QueryForARankNumberOutOfRangeIsRefused) {
  auto request = question();
  request.moved = {local::kMaxRanks};
  ask(request);
  EXPECT_EQ(receive_refusal().code(), ErrorCode::kInvalidArgument);
  EXPECT_FALSE(keeper_->is_asked());
}

TEST_F(GangMovesTest, HungProgramIsReportedAsHung) {
  auto request = question();
  request.timeout_ms = 1;
  ask(request);
  keeper_->receive<local::AskGroups>("the question");
  const Error reason = receive_refusal();
  EXPECT_EQ(reason.code(), ErrorCode::kTimedOut);
  EXPECT_THAT(reason.to_string(), HasSubstr("within 1 ms")) << "the limit of the question";
  EXPECT_THAT(reason.to_string(), HasSubstr("hangs"));
}

TEST_F(GangMovesTest, RankThatReportsItsGroupsTwiceIsRefused) {
  ask(question());
  const auto asked = keeper_->receive<local::AskGroups>("the question");
  keeper_->answer(asked.request, one_group());
  keeper_->answer(asked.request, one_group());
  EXPECT_EQ(receive_refusal().code(), ErrorCode::kProtocol);
}

TEST_F(GangMovesTest, LossOfTheKeeperIsReportedAsTheResult) {
  ask(question());
  keeper_->receive<local::AskGroups>("the question");
  keeper_->go_away();
  EXPECT_EQ(receive_refusal().code(), ErrorCode::kUnavailable);
}

TEST_F(GangMovesTest, OrderForARankOutsideAnyMoveIsRefused) {
  wire::GatherRank order;
  order.request_id = 5;
  order.job = order.incarnation = 1;
  order.migration = 9;
  RunningVoid(io_, "gather()", node_->moves.gather(order)).finish();
  EXPECT_EQ(receive_refusal().code(), ErrorCode::kNotFound);
  wire::SetLimits limits;
  limits.migration = 9;
  EXPECT_EQ(node_->moves.set_limits(limits).error().code(), ErrorCode::kNotFound);
}

}  // namespace
}  // namespace ckpt::agent
