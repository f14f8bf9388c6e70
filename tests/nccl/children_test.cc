// SPDX-License-Identifier: Apache-2.0
// Tests of splits and shrinks of communicators.
#include "tests/nccl/support/lifecycle.h"

namespace nccl_test {
namespace {

TEST_F(LifecycleTest, ASplitOrdersRanksByKey) {
  if (!as_rank(2)) return;
  ncclComm_t communicator = init();
  ncclComm_t child = nullptr;
  ASSERT_NCCL(ncclSuccess, nccl().ncclCommSplit(communicator, 5, -rank_, &child, nullptr));
  EXPECT_EQ((std::pair{1 - rank_, 2}), rank_and_count(child));
  expect_works(child, 2);
  ncclComm_t alone = nullptr;
  ASSERT_NCCL(ncclSuccess, nccl().ncclCommSplit(communicator, rank_, 0, &alone, nullptr));
  EXPECT_EQ((std::pair{0, 1}), rank_and_count(alone));
  ncclComm_t none = communicator;
  ASSERT_NCCL(ncclSuccess,
              nccl().ncclCommSplit(communicator, rank_ == 0 ? 0 : NCCL_SPLIT_NOCOLOR, 0, &none, nullptr));
  EXPECT_EQ(rank_ == 0, none != nullptr);
  destroy(none);
  destroy(alone);
  destroy(communicator);
  expect_works(child, 2);
  destroy(child);
}

TEST_F(LifecycleTest, ANonBlockingSplitKeepsItsParentBusy) {
  if (!as_rank(2)) return;
  ncclComm_t communicator = begin_non_blocking(shared_id());
  ASSERT_NCCL(ncclSuccess, settled(communicator));
  ncclComm_t child = nullptr;
  if (rank_ == 0) {
    EXPECT_NCCL(ncclInProgress, nccl().ncclCommSplit(communicator, 0, 0, &child, nullptr));
    ncclResult_t state = ncclSuccess;
    EXPECT_NCCL(ncclSuccess, nccl().ncclCommGetAsyncError(communicator, &state));
    EXPECT_EQ(ncclInProgress, state);
  }
  exchange();
  if (rank_ == 1) {
    EXPECT_NCCL(ncclInProgress, nccl().ncclCommSplit(communicator, 0, 0, &child, nullptr));
  }
  ASSERT_NCCL(ncclSuccess, settled(communicator));
  ASSERT_NE(nullptr, child);
  ASSERT_NCCL(ncclSuccess, settled(child));
  expect_works(child, 2);
  abort(child);
  abort(communicator);
}

TEST_F(LifecycleTest, AShrinkExcludesRanks) {
  if (!as_rank(2)) return;
  ncclComm_t communicator = init();
  expect_works(communicator, 2);
  if (rank_ == 0) {
    int excluded[] = {1};
    ncclComm_t child = nullptr;
    ASSERT_NCCL(ncclSuccess,
                nccl().ncclCommShrink(communicator, excluded, 1, &child, nullptr, NCCL_SHRINK_DEFAULT));
    EXPECT_EQ((std::pair{0, 1}), rank_and_count(child));
    expect_works(child, 1);
    destroy(child);
    excluded[0] = 0;
    EXPECT_NCCL(ncclInvalidArgument,
                nccl().ncclCommShrink(communicator, excluded, 1, &child, nullptr, NCCL_SHRINK_DEFAULT));
  }
  exchange();
  destroy(communicator);
}

TEST_F(LifecycleTest, AShrinkWithAbortEndsPendingOperations) {
  if (!as_rank(2)) return;
  ncclComm_t communicator = init();
  expect_works(communicator, 2);
  const Buffer<float> data(kCount, 1.0F);
  if (rank_ == 0) {
    ASSERT_NCCL(ncclSuccess, nccl().ncclAllReduce(data.get(), data.get(), kCount, ncclFloat32, ncclSum,
                                                  communicator, stream_));
    int excluded[] = {1};
    ncclComm_t child = nullptr;
    ASSERT_NCCL(ncclSuccess,
                nccl().ncclCommShrink(communicator, excluded, 1, &child, nullptr, NCCL_SHRINK_ABORT));
    EXPECT_TRUE(stream_ends(stream_));
    expect_works(child, 1);
    destroy(child);
  }
  exchange();
  abort(communicator);
}

TEST_F(LifecycleTest, FourRanksSplitAndShrink) {
  if (!as_rank(4)) return;
  ncclComm_t communicator = init();
  ncclComm_t half = nullptr;
  ASSERT_NCCL(ncclSuccess, nccl().ncclCommSplit(communicator, rank_ % 2, rank_, &half, nullptr));
  EXPECT_EQ((std::pair{rank_ / 2, 2}), rank_and_count(half));
  expect_works(half, 2);
  if (rank_ != 1) {
    int excluded[] = {1};
    ncclComm_t three = nullptr;
    ASSERT_NCCL(ncclSuccess,
                nccl().ncclCommShrink(communicator, excluded, 1, &three, nullptr, NCCL_SHRINK_DEFAULT));
    EXPECT_EQ((std::pair{rank_ == 0 ? 0 : rank_ - 1, 3}), rank_and_count(three));
    expect_works(three, 3);
    destroy(three);
  }
  exchange();
  destroy(half);
  destroy(communicator);
}

TEST_F(LifecycleTest, SurvivingRanksShrinkTheCommunicatorWithoutAKilledRank) {
  RankOptions options;
  options.killed = {1};
  if (!as_rank(3, options)) return;
  ncclComm_t communicator = init();
  expect_works(communicator, 3);
  exchange();
  if (rank_ == 1) kill_self();
  int excluded[] = {1};
  ncclComm_t child = nullptr;
  ASSERT_NCCL(ncclSuccess,
              nccl().ncclCommShrink(communicator, excluded, 1, &child, nullptr, NCCL_SHRINK_ABORT));
  EXPECT_EQ((std::pair{rank_ / 2, 2}), rank_and_count(child));
  expect_works(child, 2);
  abort(communicator);
  exchange();
  destroy(child);
}

}  // namespace
}  // namespace nccl_test
