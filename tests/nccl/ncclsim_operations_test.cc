// SPDX-License-Identifier: Apache-2.0
// Tests that ranks that disagree detect the disagreement, and that reductions follow the order of ranks.
#include "tests/nccl/support/ncclsim.h"

namespace nccl_test {
namespace {

TEST_F(NcclsimTest, DifferentElementCountsAreAnError) {
  if (!begin(2)) return;
  EXPECT_NCCL(ncclSuccess, all_reduce(rank_ == 0 ? 8 : 16));
  expect_error(ncclInvalidUsage, "of 8 int32");
  expect_error(ncclInvalidUsage, "of 16 int32");
  end();
}

TEST_F(NcclsimTest, DifferentDataTypesAreAnError) {
  if (!begin(2)) return;
  EXPECT_NCCL(ncclSuccess, all_reduce(8, rank_ == 0 ? ncclInt32 : ncclFloat32));
  expect_error(ncclInvalidUsage, "of 8 float32");
  end();
}

TEST_F(NcclsimTest, DifferentReductionOperatorsAreAnError) {
  if (!begin(2)) return;
  EXPECT_NCCL(ncclSuccess, all_reduce(8, ncclInt32, rank_ == 0 ? ncclSum : ncclMax));
  expect_error(ncclInvalidUsage, "operator 2");
  end();
}

TEST_F(NcclsimTest, ADifferentOrderOfOperationsIsAnError) {
  if (!begin(2)) return;
  const auto broadcast = [this] {
    return nccl().ncclBroadcast(data(), data(), 8, ncclInt32, 0, communicator_, stream_);
  };
  Gate gate(stream_);
  EXPECT_NCCL(ncclSuccess, rank_ == 0 ? all_reduce(8) : broadcast());
  EXPECT_NCCL(ncclSuccess, rank_ == 0 ? broadcast() : all_reduce(8));
  gate.open();
  expect_error(ncclInvalidUsage, "Broadcast number 0");
  end();
}

TEST_F(NcclsimTest, DifferentRootRanksAreAnError) {
  if (!begin(2)) return;
  EXPECT_NCCL(ncclSuccess, nccl().ncclBroadcast(data(), data(), 8, ncclInt32, rank_, communicator_, stream_));
  expect_error(ncclInvalidUsage, "root 1");
  end();
}

TEST_F(NcclsimTest, AMessageOfADifferentSizeIsAnError) {
  if (!begin(2)) return;
  if (rank_ == 0) {
    EXPECT_NCCL(ncclSuccess, nccl().ncclSend(data(), 8, ncclInt32, 1, communicator_, stream_));
  }
  if (rank_ == 1) {
    EXPECT_NCCL(ncclSuccess, nccl().ncclRecv(data(), 9, ncclInt32, 0, communicator_, stream_));
    expect_error(ncclInvalidUsage, "Send number 0 of 8 int32");
  }
  end();
}

TEST_F(NcclsimTest, AnErrorPersists) {
  if (!begin(2)) return;
  EXPECT_NCCL(ncclSuccess, all_reduce(rank_ == 0 ? 8 : 16));
  expect_error(ncclInvalidUsage, "differ");
  EXPECT_NCCL(ncclInvalidUsage, all_reduce());
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuda().cuStreamQuery(stream_));
  EXPECT_NCCL(ncclInvalidUsage, nccl().ncclCommDestroy(communicator_));
  end();
}

TEST_F(NcclsimTest, ReductionsUseTheOrderOfRanks) {
  if (!begin(4)) return;
  // In any other order, or as a tree, the sum differs.
  const float values[] = {1e8F, 1.0F, -1e8F, 2.0F};
  const Buffer<float> reduced(std::vector<float>(101, values[rank_]));
  for (int i = 0; i < 3; i++) {
    const Buffer<float> to(101);
    ASSERT_NCCL(ncclSuccess, nccl().ncclAllReduce(reduced.get(), to.get(), 101, ncclFloat32, ncclSum,
                                                  communicator_, stream_));
    sync();
    EXPECT_EQ(std::vector<float>(101, 2.0F), to.values());
  }
  end();
}

// There are two communicators on two streams each. All ranks use them in the same order.
TEST_F(NcclsimTest, ManyOperationsOfManyCommunicatorsSucceed) {
  if (!begin(4)) return;
  ncclComm_t communicators[] = {communicator_, nullptr};
  ASSERT_NCCL(ncclSuccess, nccl().ncclCommSplit(communicator_, 0, -rank_, &communicators[1], nullptr));
  CUstream streams[] = {stream_, nullptr};
  ASSERT_CUDA_OK(cuda().cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING));
  std::vector<std::unique_ptr<Buffer<std::int32_t>>> buffers;
  for (int i = 0; i < 4; i++) buffers.push_back(std::make_unique<Buffer<std::int32_t>>(1000, 1));
  std::vector<std::int32_t> expected(4, 1);
  std::uint32_t seed = 12345;
  for (int i = 0; i < 150; i++) {
    seed = seed * 1664525U + 1013904223U;
    const std::size_t which = seed >> 30;
    const std::size_t count = (seed >> 8) % 1000 + 1;
    // Each buffer always uses the same stream and communicator.
    ASSERT_NCCL(ncclSuccess,
                nccl().ncclAllReduce(buffers[which]->get(), buffers[which]->get(), count, ncclInt32, ncclMax,
                                     communicators[which % 2], streams[which / 2]));
    if (i % 12 != 0) continue;
    expected[which] *= 4;
    ASSERT_NCCL(ncclSuccess,
                nccl().ncclAllReduce(buffers[which]->get(), buffers[which]->get(), 1000, ncclInt32, ncclSum,
                                     communicators[which % 2], streams[which / 2]));
  }
  for (CUstream stream : streams) ASSERT_CUDA_OK(cuda().cuStreamSynchronize(stream));
  for (std::size_t i = 0; i < 4; i++)
    EXPECT_EQ(std::vector<std::int32_t>(1000, expected[i]), buffers[i]->values());
  EXPECT_CUDA_OK(cuda().cuStreamDestroy_v2(streams[1]));
  EXPECT_NCCL(ncclSuccess, nccl().ncclCommDestroy(communicators[1]));
  end();
}

}  // namespace
}  // namespace nccl_test
