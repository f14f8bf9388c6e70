// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/rebalance/rebalance_run.h"

#include <gtest/gtest.h>

namespace ckpt::coordinator {
namespace {

// Jobs of 10 bytes on GPUs of their own, which move to GPU 0 one after the other.
class RebalanceRunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (std::size_t i = 0; i < 3; ++i) {
      PackJob& job = run_.problem.jobs.emplace_back();
      job.gpu = i + 1;
      job.bytes = 10;
      PackMove& move = run_.plan.moves.emplace_back();
      move.job = i;
      move.to = 0;
    }
    run_.moves.resize(3);
    run_.available = {15, 0, 0, 0};
    run_.parallel = 2;
  }
  std::optional<std::size_t> next() { return begin_next(run_, false); }

  RebalanceRun run_;
};

TEST_F(RebalanceRunTest, ConcurrentMovesAreLimitedByMemoryAndByTheSetting) {
  EXPECT_EQ(next(), 0U);
  EXPECT_FALSE(next()) << "5 bytes are left";
  run_.available[0] = 100;
  EXPECT_EQ(next(), 1U);
  EXPECT_FALSE(next()) << "two are moving";
  end_move(run_, 0, ok());
  EXPECT_EQ(run_.available[1], 10U) << "it has left its GPU";
  EXPECT_EQ(next(), 2U);
  end_move(run_, 1, ok());
  EXPECT_FALSE(is_over(run_, false));
  end_move(run_, 2, ok());
  EXPECT_TRUE(is_over(run_, false));
  EXPECT_EQ(finish(run_), 3U);
  EXPECT_EQ(run_.state, RunState::kDone);
}

TEST_F(RebalanceRunTest, ASingleMoveIsTriedEvenIfThePlanCountsTooLittleMemory) {
  run_.available[0] = 0;
  EXPECT_EQ(next(), 0U);
}

TEST_F(RebalanceRunTest, AfterAFailureTheRunEndsOnceItsOpenMovesHaveEnded) {
  run_.available[0] = 100;
  EXPECT_EQ(next(), 0U);
  EXPECT_EQ(next(), 1U);
  end_move(run_, 0, Error(ErrorCode::kRefused, "no"));
  EXPECT_FALSE(next());
  EXPECT_FALSE(is_over(run_, false));
  end_move(run_, 1, ok());
  EXPECT_TRUE(is_over(run_, false));
  EXPECT_EQ(finish(run_), 1U);
  EXPECT_EQ(run_.state, RunState::kFailed);
  EXPECT_EQ(run_.moves[2].state, MoveState::kLeft);
}

TEST_F(RebalanceRunTest, AStopLetsOpenMovesEnd) {
  EXPECT_EQ(next(), 0U);
  EXPECT_FALSE(begin_next(run_, true));
  EXPECT_FALSE(is_over(run_, true));
  end_move(run_, 0, ok());
  EXPECT_TRUE(is_over(run_, true));
  EXPECT_EQ(finish(run_), 1U);
  EXPECT_EQ(run_.state, RunState::kStopped);
}

}  // namespace
}  // namespace ckpt::coordinator
