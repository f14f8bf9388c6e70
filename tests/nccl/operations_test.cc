// SPDX-License-Identifier: Apache-2.0
// Tests of operations between two ranks, and of their effects in streams, groups and graphs.
#include <chrono>
#include <cstdint>
#include <numeric>

#include "tests/nccl/support/device.h"
#include "tests/nccl/support/ranks.h"

namespace nccl_test {
namespace {

constexpr std::size_t kMany = 300000;  // more elements than one segment of a socket holds; not a multiple of
                                       // that number

class OperationsTest : public RanksTest {
 protected:
  bool begin(int ranks = 2, const RankOptions& options = {}) {
    if (!as_rank(ranks, options)) return false;
    communicator_ = init();
    return communicator_ != nullptr;
  }
  void TearDown() override {
    if (communicator_ != nullptr) {
      EXPECT_CUDA_OK(cuda().cuStreamSynchronize(stream_));
      EXPECT_NCCL(ncclSuccess, nccl().ncclCommDestroy(communicator_));
    }
    RanksTest::TearDown();
  }
  void sync() { ASSERT_CUDA_OK(cuda().cuStreamSynchronize(stream_)); }
  // Returns the elements of rank `rank`: element i is the i-th value.
  static std::vector<std::int32_t> input(int rank, std::size_t count) {
    std::vector<std::int32_t> values(count);
    for (std::size_t i = 0; i < count; i++) values[i] = static_cast<std::int32_t>(i) * 3 + rank * 1000;
    return values;
  }
  [[nodiscard]] std::vector<std::int32_t> sum(std::size_t count) const {
    std::vector<std::int32_t> total(count, 0);
    for (int rank = 0; rank < ranks_; rank++) {
      const auto values = input(rank, count);
      for (std::size_t i = 0; i < count; i++) total[i] += values[i];
    }
    return total;
  }

  ncclComm_t communicator_ = nullptr;
};

TEST_F(OperationsTest, AllReduceSumsTheInputsOfAllRanks) {
  if (!begin()) return;
  const Buffer<std::int32_t> from(input(rank_, kMany));
  const Buffer<std::int32_t> to(kMany);
  ASSERT_NCCL(ncclSuccess,
              nccl().ncclAllReduce(from.get(), to.get(), kMany, ncclInt32, ncclSum, communicator_, stream_));
  sync();
  EXPECT_EQ(sum(kMany), to.values());
  EXPECT_EQ(input(rank_, kMany), from.values());
}

TEST_F(OperationsTest, AllReduceWorksInPlaceOnOneElement) {
  if (!begin()) return;
  const Buffer<std::int32_t> data(input(rank_, 1));
  for (int i = 0; i < 3; i++) {
    ASSERT_NCCL(ncclSuccess,
                nccl().ncclAllReduce(data.get(), data.get(), 1, ncclInt32, ncclSum, communicator_, stream_));
  }
  sync();
  EXPECT_EQ(std::vector<std::int32_t>{4000}, data.values());
}

TEST_F(OperationsTest, ReduceStoresTheResultAtTheRoot) {
  if (!begin()) return;
  const Buffer<std::int32_t> from(input(rank_, 1001));
  const Buffer<std::int32_t> to(1001, 7);
  ASSERT_NCCL(ncclSuccess, nccl().ncclReduce(from.get(), rank_ == 1 ? to.get() : nullptr, 1001, ncclInt32,
                                             ncclSum, 1, communicator_, stream_));
  sync();
  EXPECT_EQ(rank_ == 1 ? sum(1001) : std::vector<std::int32_t>(1001, 7), to.values());
}

TEST_F(OperationsTest, BroadcastAndBcastCopyTheDataOfTheRoot) {
  if (!begin()) return;
  const Buffer<std::int32_t> from(input(rank_, 500));
  const Buffer<std::int32_t> to(500);
  ASSERT_NCCL(ncclSuccess,
              nccl().ncclBroadcast(from.get(), to.get(), 500, ncclInt32, 1, communicator_, stream_));
  ASSERT_NCCL(ncclSuccess, nccl().ncclBcast(from.get(), 500, ncclInt32, 0, communicator_, stream_));
  sync();
  EXPECT_EQ(input(1, 500), to.values());
  EXPECT_EQ(input(0, 500), from.values());
}

TEST_F(OperationsTest, AllGatherKeepsTheOrderOfRanks) {
  if (!begin()) return;
  const Buffer<std::int32_t> from(input(rank_, 300));
  const Buffer<std::int32_t> to(600);
  ASSERT_NCCL(ncclSuccess,
              nccl().ncclAllGather(from.get(), to.get(), 300, ncclInt32, communicator_, stream_));
  sync();
  auto expected = input(0, 300);
  const auto more = input(1, 300);
  expected.insert(expected.end(), more.begin(), more.end());
  EXPECT_EQ(expected, to.values());
}

TEST_F(OperationsTest, ReduceScatterGivesEachRankItsPart) {
  if (!begin()) return;
  const Buffer<std::int32_t> from(input(rank_, 2 * 700));
  const Buffer<std::int32_t> to(700);
  ASSERT_NCCL(ncclSuccess, nccl().ncclReduceScatter(from.get(), to.get(), 700, ncclInt32, ncclSum,
                                                    communicator_, stream_));
  sync();
  const auto all = sum(2 * 700);
  EXPECT_EQ(std::vector<std::int32_t>(all.begin() + rank_ * 700, all.begin() + (rank_ + 1) * 700),
            to.values());
}

TEST_F(OperationsTest, SendAndReceiveTransferData) {
  if (!begin()) return;
  const Buffer<std::int32_t> data(rank_ == 0 ? input(0, kMany) : std::vector<std::int32_t>(kMany));
  if (rank_ == 0) {
    ASSERT_NCCL(ncclSuccess, nccl().ncclSend(data.get(), kMany, ncclInt32, 1, communicator_, stream_));
  } else {
    ASSERT_NCCL(ncclSuccess, nccl().ncclRecv(data.get(), kMany, ncclInt32, 0, communicator_, stream_));
  }
  sync();
  EXPECT_EQ(input(0, kMany), data.values());
}

TEST_F(OperationsTest, AGroupExchangesDataInBothDirections) {
  if (!begin()) return;
  const Buffer<std::int32_t> from(input(rank_, kMany));
  const Buffer<std::int32_t> to(kMany);
  ASSERT_NCCL(ncclSuccess, nccl().ncclGroupStart());
  EXPECT_NCCL(ncclSuccess, nccl().ncclSend(from.get(), kMany, ncclInt32, 1 - rank_, communicator_, stream_));
  EXPECT_NCCL(ncclSuccess, nccl().ncclRecv(to.get(), kMany, ncclInt32, 1 - rank_, communicator_, stream_));
  ASSERT_NCCL(ncclSuccess, nccl().ncclGroupEnd());
  sync();
  EXPECT_EQ(input(1 - rank_, kMany), to.values());
}

TEST_F(OperationsTest, NestedGroupsMixCollectivesAndMessages) {
  if (!begin()) return;
  const Buffer<std::int32_t> summed(input(rank_, 2000));
  const Buffer<std::int32_t> from(input(rank_, 50));
  const Buffer<std::int32_t> first(50);
  const Buffer<std::int32_t> second(50);
  const int peer = 1 - rank_;
  ASSERT_NCCL(ncclSuccess, nccl().ncclGroupStart());
  EXPECT_NCCL(ncclSuccess, nccl().ncclRecv(first.get(), 50, ncclInt32, peer, communicator_, stream_));
  ASSERT_NCCL(ncclSuccess, nccl().ncclGroupStart());
  EXPECT_NCCL(ncclSuccess, nccl().ncclAllReduce(summed.get(), summed.get(), 2000, ncclInt32, ncclSum,
                                                communicator_, stream_));
  EXPECT_NCCL(ncclSuccess, nccl().ncclSend(from.get(), 50, ncclInt32, peer, communicator_, stream_));
  ASSERT_NCCL(ncclSuccess, nccl().ncclGroupEnd());
  EXPECT_EQ(CUDA_SUCCESS, cuda().cuStreamQuery(stream_));  // no operation starts before the end of the outer
                                                           // group
  EXPECT_NCCL(ncclSuccess, nccl().ncclSend(summed.get(), 0, ncclInt32, peer, communicator_, stream_));
  EXPECT_NCCL(ncclSuccess, nccl().ncclRecv(second.get(), 0, ncclInt32, peer, communicator_, stream_));
  ASSERT_NCCL(ncclSuccess, nccl().ncclGroupEnd());
  sync();
  EXPECT_EQ(sum(2000), summed.values());
  EXPECT_EQ(input(peer, 50), first.values());
  EXPECT_EQ(std::vector<std::int32_t>(50), second.values());
}

TEST_F(OperationsTest, ARankSendsToItselfWithinAGroup) {
  if (!begin()) return;
  const Buffer<std::int32_t> from(input(rank_, 64));
  const Buffer<std::int32_t> to(64);
  ASSERT_NCCL(ncclSuccess, nccl().ncclGroupStart());
  EXPECT_NCCL(ncclSuccess, nccl().ncclSend(from.get(), 64, ncclInt32, rank_, communicator_, stream_));
  EXPECT_NCCL(ncclSuccess, nccl().ncclRecv(to.get(), 64, ncclInt32, rank_, communicator_, stream_));
  ASSERT_NCCL(ncclSuccess, nccl().ncclGroupEnd());
  sync();
  EXPECT_EQ(input(rank_, 64), to.values());
}

TEST_F(OperationsTest, AllToAllGatherAndScatterExchangeData) {
  if (!begin()) return;
  const Buffer<std::int32_t> from(input(rank_, 200));
  const Buffer<std::int32_t> exchanged(200);
  const Buffer<std::int32_t> gathered(200);
  const Buffer<std::int32_t> scattered(100);
  ASSERT_NCCL(ncclSuccess,
              nccl().ncclAlltoAll(from.get(), exchanged.get(), 100, ncclInt32, communicator_, stream_));
  ASSERT_NCCL(ncclSuccess,
              nccl().ncclGather(from.get(), gathered.get(), 100, ncclInt32, 1, communicator_, stream_));
  ASSERT_NCCL(ncclSuccess,
              nccl().ncclScatter(from.get(), scattered.get(), 100, ncclInt32, 0, communicator_, stream_));
  sync();
  const auto part = [](int rank, int which) {
    const auto values = input(rank, 200);
    return std::vector<std::int32_t>(values.begin() + which * 100, values.begin() + (which + 1) * 100);
  };
  const auto joined = [](std::vector<std::int32_t> a, const std::vector<std::int32_t>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  EXPECT_EQ(joined(part(0, rank_), part(1, rank_)), exchanged.values());
  EXPECT_EQ(rank_ == 1 ? joined(part(0, 0), part(1, 0)) : std::vector<std::int32_t>(200), gathered.values());
  EXPECT_EQ(part(0, rank_), scattered.values());
}

TEST_F(OperationsTest, EmptyOperationsSucceed) {
  if (!begin()) return;
  EXPECT_NCCL(ncclSuccess,
              nccl().ncclAllReduce(nullptr, nullptr, 0, ncclFloat32, ncclSum, communicator_, stream_));
  EXPECT_NCCL(ncclSuccess, nccl().ncclAllGather(nullptr, nullptr, 0, ncclFloat32, communicator_, stream_));
  ASSERT_NCCL(ncclSuccess, nccl().ncclGroupStart());
  ASSERT_NCCL(ncclSuccess, nccl().ncclGroupEnd());
  sync();
}

TEST_F(OperationsTest, ACallReturnsBeforeTheStreamReachesTheOperation) {
  if (!begin()) return;
  const Buffer<std::int32_t> data(4);
  Gate gate(stream_);
  ASSERT_NCCL(ncclSuccess,
              nccl().ncclAllReduce(data.get(), data.get(), 4, ncclInt32, ncclSum, communicator_, stream_));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuda().cuStreamQuery(stream_));
  exchange();  // both ranks have called the operation, and neither rank has begun to execute the operation
  gate.open();
  sync();
}

TEST_F(OperationsTest, AGroupSpansOperationsOfTwoStreams) {
  if (!begin()) return;
  CUstream other = nullptr;
  ASSERT_CUDA_OK(cuda().cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  const Buffer<std::int32_t> one(input(rank_, 900));
  const Buffer<std::int32_t> two(input(rank_, 800));
  Gate gate(other);
  ASSERT_NCCL(ncclSuccess, nccl().ncclGroupStart());
  EXPECT_NCCL(ncclSuccess,
              nccl().ncclAllReduce(one.get(), one.get(), 900, ncclInt32, ncclSum, communicator_, stream_));
  EXPECT_NCCL(ncclSuccess,
              nccl().ncclAllReduce(two.get(), two.get(), 800, ncclInt32, ncclSum, communicator_, other));
  ASSERT_NCCL(ncclSuccess, nccl().ncclGroupEnd());
  exchange();
  // Neither operation begins before both streams have reached it. This can be observed only for a limited
  // time.
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  while (cuda().cuStreamQuery(stream_) == CUDA_ERROR_NOT_READY && std::chrono::steady_clock::now() < until) {
  }
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuda().cuStreamQuery(stream_));
  gate.open();
  sync();
  ASSERT_CUDA_OK(cuda().cuStreamSynchronize(other));
  EXPECT_EQ(sum(900), one.values());
  EXPECT_EQ(sum(800), two.values());
  EXPECT_CUDA_OK(cuda().cuStreamDestroy_v2(other));
}

TEST_F(OperationsTest, AGraphReplaysItsCapturedOperations) {
  if (!begin()) return;
  const Buffer<std::int32_t> data(input(rank_, 1000));
  {
    Graph graph(stream_, [&] {
      EXPECT_NCCL(ncclSuccess, nccl().ncclAllReduce(data.get(), data.get(), 1000, ncclInt32, ncclSum,
                                                    communicator_, stream_));
      EXPECT_NCCL(ncclSuccess,
                  nccl().ncclBroadcast(data.get(), data.get(), 1000, ncclInt32, 0, communicator_, stream_));
    });
    sync();
    EXPECT_EQ(input(rank_, 1000), data.values());  // captured, not executed
    for (int i = 0; i < 3; i++) graph.launch();
    // An operation of the stream itself runs after the operations of the graph.
    ASSERT_NCCL(ncclSuccess, nccl().ncclAllReduce(data.get(), data.get(), 1000, ncclInt32, ncclSum,
                                                  communicator_, stream_));
    sync();
  }
  auto expected = sum(1000);
  for (std::int32_t& value : expected) value *= 8;
  EXPECT_EQ(expected, data.values());
}

TEST_F(OperationsTest, AnOperatorScalesTheInputsOfARank) {
  if (!begin()) return;
  const Buffer<float> from(std::vector<float>{1, 2, 3});
  const Buffer<float> to(3);
  const Buffer<float> scalars(std::vector<float>{rank_ == 0 ? 10.0F : 100.0F});
  float factor = rank_ == 0 ? 2.0F : 3.0F;
  ncclRedOp_t by_host{};
  ncclRedOp_t by_device{};
  ASSERT_NCCL(ncclSuccess, nccl().ncclRedOpCreatePreMulSum(&by_host, &factor, ncclFloat32,
                                                           ncclScalarHostImmediate, communicator_));
  ASSERT_NCCL(ncclSuccess, nccl().ncclRedOpCreatePreMulSum(&by_device, scalars.get(), ncclFloat32,
                                                           ncclScalarDevice, communicator_));
  factor = 0;
  ASSERT_NCCL(ncclSuccess,
              nccl().ncclAllReduce(from.get(), to.get(), 3, ncclFloat32, by_host, communicator_, stream_));
  sync();
  EXPECT_EQ((std::vector<float>{5, 10, 15}), to.values());
  ASSERT_NCCL(ncclSuccess,
              nccl().ncclAllReduce(from.get(), to.get(), 3, ncclFloat32, by_device, communicator_, stream_));
  EXPECT_NCCL(ncclSuccess, nccl().ncclRedOpDestroy(by_host, communicator_));
  EXPECT_NCCL(ncclSuccess, nccl().ncclRedOpDestroy(by_device, communicator_));
  sync();
  EXPECT_EQ((std::vector<float>{110, 220, 330}), to.values());
  EXPECT_NCCL(ncclInvalidArgument,
              nccl().ncclAllReduce(from.get(), to.get(), 3, ncclFloat32, by_host, communicator_, stream_));
  EXPECT_NCCL(ncclInvalidArgument, nccl().ncclRedOpDestroy(by_host, communicator_));
  EXPECT_NCCL(ncclInvalidArgument, nccl().ncclRedOpDestroy(ncclSum, communicator_));
}

TEST_F(OperationsTest, InvalidArgumentsAreRefusedImmediately) {
  if (!begin()) return;
  const Buffer<float> data(4, 1.0F);
  const auto refused = [&](int type, int operation, int root) {
    EXPECT_NCCL(ncclInvalidArgument,
                nccl().ncclReduce(data.get(), data.get(), 4, static_cast<ncclDataType_t>(type),
                                  static_cast<ncclRedOp_t>(operation), root, communicator_, stream_));
  };
  refused(ncclFloat32, ncclSum, 2);
  refused(ncclFloat32, ncclSum, -1);
  refused(ncclNumTypes, ncclSum, 0);
  refused(ncclFloat32, ncclNumOps, 0);
  EXPECT_NCCL(ncclInvalidArgument,
              nccl().ncclAllReduce(data.get(), data.get(), 4, ncclFloat32, ncclSum, nullptr, stream_));
  EXPECT_NCCL(ncclInvalidArgument, nccl().ncclSend(data.get(), 4, ncclFloat32, 2, communicator_, stream_));
  EXPECT_NCCL(ncclInvalidUsage, nccl().ncclSend(data.get(), 4, ncclFloat32, rank_, communicator_, stream_));
  EXPECT_NCCL(ncclInvalidUsage, nccl().ncclGroupEnd());
  // A group with an invalid call executes none of its operations.
  ASSERT_NCCL(ncclSuccess, nccl().ncclGroupStart());
  EXPECT_NCCL(ncclSuccess,
              nccl().ncclAllReduce(data.get(), data.get(), 4, ncclFloat32, ncclSum, communicator_, stream_));
  EXPECT_NCCL(ncclInvalidArgument,
              nccl().ncclReduce(data.get(), data.get(), 4, ncclFloat32, ncclSum, 9, communicator_, stream_));
  EXPECT_NCCL(ncclInvalidArgument, nccl().ncclGroupEnd());
  sync();
  EXPECT_EQ(std::vector<float>(4, 1.0F), data.values());
}

TEST_F(OperationsTest, ASimulatedGroupTransfersNoData) {
  if (!begin()) return;
  const Buffer<std::int32_t> data(input(rank_, 16));
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  ASSERT_NCCL(ncclSuccess, nccl().ncclGroupStart());
  EXPECT_NCCL(ncclSuccess,
              nccl().ncclAllReduce(data.get(), data.get(), 16, ncclInt32, ncclSum, communicator_, stream_));
  ASSERT_NCCL(ncclSuccess, nccl().ncclGroupSimulateEnd(&info));
  sync();
  EXPECT_EQ(input(rank_, 16), data.values());
  EXPECT_GE(info.estimatedTime, 0.0F);
}

TEST_F(OperationsTest, FourRanksCompleteEveryOperation) {
  if (!begin(4)) return;
  const Buffer<std::int32_t> data(input(rank_, 1003));
  const Buffer<std::int32_t> gathered(4 * 1003);
  ASSERT_NCCL(ncclSuccess,
              nccl().ncclAllReduce(data.get(), data.get(), 1003, ncclInt32, ncclSum, communicator_, stream_));
  ASSERT_NCCL(ncclSuccess,
              nccl().ncclAllGather(data.get(), gathered.get(), 1003, ncclInt32, communicator_, stream_));
  // The operations form a ring, in one group.
  ASSERT_NCCL(ncclSuccess, nccl().ncclGroupStart());
  EXPECT_NCCL(ncclSuccess,
              nccl().ncclSend(data.get(), 1003, ncclInt32, (rank_ + 1) % 4, communicator_, stream_));
  EXPECT_NCCL(ncclSuccess,
              nccl().ncclRecv(gathered.get(), 1003, ncclInt32, (rank_ + 3) % 4, communicator_, stream_));
  ASSERT_NCCL(ncclSuccess, nccl().ncclGroupEnd());
  sync();
  const auto all = gathered.values();
  for (std::size_t part = 0; part < 4; part++) {
    EXPECT_EQ(sum(1003),
              std::vector<std::int32_t>(all.begin() + part * 1003, all.begin() + (part + 1) * 1003));
  }
}

}  // namespace
}  // namespace nccl_test
