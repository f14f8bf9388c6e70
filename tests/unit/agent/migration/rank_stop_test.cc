// SPDX-License-Identifier: Apache-2.0
// A rank of a gang on its way to the common barrier. The test plays its keeper, its party and the
// coordinator.
#include "agent/migration/gangs/rank_stop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/agent/jobs/played_job.h"

namespace ckpt::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using wire::GatherAct;

class FakeHeldRank : public HeldRank {
 public:
  [[nodiscard]] std::shared_ptr<Job> job() const override { return instance; }
  void pause_at(std::uint64_t barrier) override { barriers.push_back(barrier); }
  void failed(const Error& error) override { failures.push_back(error.code()); }
  std::shared_ptr<Job> instance;
  std::vector<std::uint64_t> barriers;
  std::vector<ErrorCode> failures;
};

class RankStopTest : public PlayedJob {
 protected:
  using Gather = Running<Result<wire::RankGathered>>;
  void SetUp() override {
    PlayedJob::SetUp();
    rank_->instance = job_;
    stop_ = std::make_shared<RankStop>(io_.get_executor(), rank_);
  }
  void TearDown() override {
    stop_->end();
    settle();
    PlayedJob::TearDown();
  }
  Gather gather(GatherAct act, std::uint64_t barrier = 0, std::uint64_t attempt = 1) {
    wire::GatherRank order;
    order.job = order.incarnation = 1;
    order.act = act;
    order.barrier = barrier;
    order.set = attempt;
    return {io_, "gather()", stop_->gather(order)};
  }
  void expect_left(Gather gather) {
    ASSERT_FALSE(gather.result());
    EXPECT_EQ(gather.result().error().code(), ErrorCode::kAborted);
  }
  // Answers the order to stop, which the keeper must have received, with the rank's barrier count.
  void count(const char* what, std::uint64_t attempt, std::uint64_t barrier) {
    const auto order = keeper_->receive<local::StopAt>(what);
    EXPECT_EQ(order.body.attempt, attempt);
    EXPECT_EQ(order.body.barrier, barrier);
    local::Counted counted;
    counted.stop_at = barrier;
    counted.barriers = 6;
    keeper_->answer(order.request, counted);
  }

  std::shared_ptr<FakeHeldRank> rank_ = std::make_shared<FakeHeldRank>();
  std::shared_ptr<RankStop> stop_;
};

TEST_F(RankStopTest, RankIsReadyOnceItsPartyRequestsTheHold) {
  auto ready = gather(GatherAct::kReady);
  settle();
  EXPECT_FALSE(ready.done());
  stop_->want();
  ASSERT_TRUE(ready.result());
  EXPECT_EQ(ready.result()->stop_at, 0U);
}

TEST_F(RankStopTest, RankWithoutARequestedHoldIsNeitherStoppedNorPaused) {
  expect_left(gather(GatherAct::kStopAt, 9));
  expect_left(gather(GatherAct::kPauseAt, 9));
  EXPECT_FALSE(keeper_->is_asked());
  EXPECT_THAT(rank_->barriers, IsEmpty());
}

TEST_F(RankStopTest, StopOrderIsSentToTheKeeperAndAnsweredWithItsCount) {
  stop_->want();
  auto stops = gather(GatherAct::kStopAt, 9, 4);
  count("the order to stop", 4, 9);
  ASSERT_TRUE(stops.result());
  EXPECT_EQ(stops.result()->stop_at, 9U);
  EXPECT_EQ(stops.result()->barriers, 6U);
  EXPECT_THAT(rank_->barriers, IsEmpty()) << "all must have agreed first";
}

TEST_F(RankStopTest, RefusalOfTheKeeperIsReturned) {
  stop_->want();
  auto stops = gather(GatherAct::kStopAt, 9);
  keeper_->refuse(keeper_->receive<local::StopAt>("the order to stop").request, local::MessageType::kStopAt,
                  Error(ErrorCode::kRefused, "it is past that barrier"));
  ASSERT_FALSE(stops.result());
  EXPECT_EQ(stops.result().error().code(), ErrorCode::kRefused);
}

TEST_F(RankStopTest, LossOfTheKeeperDuringAQueryIsAnError) {
  stop_->want();
  auto stops = gather(GatherAct::kStopAt, 9);
  keeper_->receive<local::StopAt>("the order to stop");
  keeper_->go_away();
  ASSERT_FALSE(stops.result());
  EXPECT_EQ(stops.result().error().code(), ErrorCode::kUnavailable);
  expect_left(gather(GatherAct::kStopAt, 10));  // no further query is possible
}

TEST_F(RankStopTest, RankWithoutAnInstanceIsNotStopped) {
  rank_->instance = nullptr;
  stop_->want();
  expect_left(gather(GatherAct::kStopAt, 9));
}

// If a rank had two barriers, the gang would be inconsistent.
TEST_F(RankStopTest, RankIsPausedOnceAtTheFirstNamedBarrier) {
  stop_->want();
  EXPECT_TRUE(gather(GatherAct::kPauseAt, 9).result());
  EXPECT_TRUE(gather(GatherAct::kPauseAt, 9).result());
  EXPECT_TRUE(gather(GatherAct::kPauseAt, 10).result());
  EXPECT_THAT(rank_->barriers, ElementsAre(9U));
}

TEST_F(RankStopTest, PauseWithoutABarrierIsRefused) {
  stop_->want();
  expect_left(gather(GatherAct::kPauseAt, 0));
  EXPECT_THAT(rank_->barriers, IsEmpty());
}

TEST_F(RankStopTest, PausedRankReportsItsBarrierAfterACoordinatorRestartAndRefusesAnotherBarrier) {
  stop_->want();
  ASSERT_TRUE(gather(GatherAct::kPauseAt, 9).result());
  auto ready = gather(GatherAct::kReady);
  ASSERT_TRUE(ready.result());
  EXPECT_EQ(ready.result()->stop_at, 9U);
  expect_left(gather(GatherAct::kStopAt, 12));
  EXPECT_FALSE(keeper_->is_asked());
}

TEST_F(RankStopTest, RankPausedBeforeAnAgentRestartReportsItsBarrier) {
  auto ready = gather(GatherAct::kReady);
  stop_->is_held();
  ASSERT_TRUE(ready.result());
  EXPECT_EQ(ready.result()->stop_at, RankStop::kUnknownBarrier);
  EXPECT_TRUE(gather(GatherAct::kPauseAt, 9).result());
  EXPECT_THAT(rank_->barriers, IsEmpty()) << "it is paused already";
}

TEST_F(RankStopTest, PausedRankReportsItsBarrierAfterTheHold) {
  stop_->want();
  ASSERT_TRUE(gather(GatherAct::kPauseAt, 9).result());
  stop_->is_held();
  EXPECT_EQ(gather(GatherAct::kReady).result()->stop_at, 9U);
}

TEST_F(RankStopTest, RankThatLeavesTheMoveAnswersAllPendingOrders) {
  auto first = gather(GatherAct::kReady);
  auto second = gather(GatherAct::kReady);
  stop_->end();
  expect_left(std::move(first));
  expect_left(std::move(second));
  expect_left(gather(GatherAct::kReady));
  expect_left(gather(GatherAct::kPauseAt, 9));
  EXPECT_THAT(rank_->barriers, IsEmpty());
}

TEST_F(RankStopTest, OrderToContinueIsRefusedForAMovingRank) {
  auto goes_on = gather(GatherAct::kGoOn);
  ASSERT_FALSE(goes_on.result());
  EXPECT_EQ(goes_on.result().error().code(), ErrorCode::kInvalidArgument);
}

TEST_F(RankStopTest, TimeOfTheFirstOrderOfAnAttemptIsRecorded) {
  stop_->want();
  EXPECT_EQ(stop_->stop_requested_at(), 0);
  auto first = gather(GatherAct::kStopAt, 9, 4);
  count("the first order", 4, 9);
  ASSERT_TRUE(first.result());
  const Nanos told = stop_->stop_requested_at();
  EXPECT_GT(told, 0);
  auto raised = gather(GatherAct::kStopAt, 11, 4);
  count("the raised barrier", 4, 11);
  ASSERT_TRUE(raised.result());
  EXPECT_EQ(stop_->stop_requested_at(), told);
  auto again = gather(GatherAct::kStopAt, 9, 5);
  count("the next attempt", 5, 9);
  ASSERT_TRUE(again.result());
  EXPECT_GT(stop_->stop_requested_at(), told);
}

}  // namespace
}  // namespace ckpt::agent
