// SPDX-License-Identifier: Apache-2.0
// Communicators: how they begin, what they answer, how they end.
#include <atomic>
#include <thread>

#include "tests/nccl/support/device.h"
#include "tests/nccl/support/ranks.h"

namespace nccl_test {
namespace {

constexpr std::size_t kCount = 256;

class LifecycleTest : public RanksTest {
 protected:
  // An all-reduce of ones; what it gives is the number of ranks.
  void expect_works(ncclComm_t communicator, int ranks) {
    const Buffer<float> data(kCount, 1.0F);
    const ncclResult_t result =
        nccl().ncclAllReduce(data.get(), data.get(), kCount, ncclFloat32, ncclSum, communicator, stream_);
    EXPECT_TRUE(result == ncclSuccess || result == ncclInProgress) << last_error();
    EXPECT_NCCL(ncclSuccess, settled(communicator));
    ASSERT_CUDA_OK(cuda().cuStreamSynchronize(stream_));
    EXPECT_EQ(std::vector<float>(kCount, static_cast<float>(ranks)), data.values());
  }
  static std::pair<int, int> rank_and_count(ncclComm_t communicator) {
    int rank = -1;
    int count = -1;
    EXPECT_NCCL(ncclSuccess, nccl().ncclCommUserRank(communicator, &rank));
    EXPECT_NCCL(ncclSuccess, nccl().ncclCommCount(communicator, &count));
    return {rank, count};
  }
  ncclComm_t begin_non_blocking(const ncclUniqueId& id) {
    ncclConfig_t config = non_blocking();
    ncclComm_t communicator = nullptr;
    EXPECT_NCCL(ncclInProgress, nccl().ncclCommInitRankConfig(&communicator, ranks_, id, rank_, &config));
    EXPECT_NE(nullptr, communicator);
    return communicator;
  }
  static void destroy(ncclComm_t communicator) {
    EXPECT_NCCL(ncclSuccess, nccl().ncclCommDestroy(communicator));
  }
  static void abort(ncclComm_t communicator) { EXPECT_NCCL(ncclSuccess, nccl().ncclCommAbort(communicator)); }
};

TEST_F(LifecycleTest, VersionAndTexts) {
  if (!as_rank(1)) return;
  int version = 0;
  EXPECT_NCCL(ncclSuccess, nccl().ncclGetVersion(&version));
  EXPECT_GE(version, 22807);
  EXPECT_NCCL(ncclInvalidArgument, nccl().ncclGetVersion(nullptr));
  EXPECT_STREQ("no error", nccl().ncclGetErrorString(ncclSuccess));
  EXPECT_STREQ("remote process exited or there was a network error",
               nccl().ncclGetErrorString(ncclRemoteError));
  EXPECT_STREQ("NCCL operation in progress", nccl().ncclGetErrorString(ncclInProgress));
  EXPECT_STREQ("unknown result code", nccl().ncclGetErrorString(ncclNumResults));
}

TEST_F(LifecycleTest, ACommunicatorKnowsItsRanks) {
  if (!as_rank(2)) return;
  ncclComm_t communicator = init();
  int device = -1;
  EXPECT_EQ((std::pair{rank_, 2}), rank_and_count(communicator));
  EXPECT_NCCL(ncclSuccess, nccl().ncclCommCuDevice(communicator, &device));
  EXPECT_EQ(std::atoi(std::getenv("NCCL_TEST_DEVICE")), device);
  expect_works(communicator, 2);
  EXPECT_NCCL(ncclInvalidArgument, nccl().ncclCommCount(nullptr, &device));
  EXPECT_NCCL(ncclInvalidArgument, nccl().ncclCommCount(communicator, nullptr));
  destroy(communicator);
  EXPECT_NCCL(ncclSuccess, nccl().ncclCommDestroy(nullptr));
  EXPECT_NCCL(ncclSuccess, nccl().ncclCommAbort(nullptr));
}

TEST_F(LifecycleTest, OneRankAlone) {
  if (!as_rank(1)) return;
  ncclComm_t communicator = nullptr;
  ASSERT_NCCL(ncclSuccess, nccl().ncclCommInitAll(&communicator, 1, nullptr));
  EXPECT_EQ((std::pair{0, 1}), rank_and_count(communicator));
  expect_works(communicator, 1);
  destroy(communicator);
  const int twice[] = {0, 0};
  ncclComm_t two[2] = {};
  EXPECT_NCCL(ncclInvalidUsage, nccl().ncclCommInitAll(two, 2, twice));
}

TEST_F(LifecycleTest, WrongRanksAndConfigurationsAreRefused) {
  if (!as_rank(1)) return;
  const ncclUniqueId id = shared_id();
  ncclComm_t communicator = nullptr;
  EXPECT_NCCL(ncclInvalidArgument, nccl().ncclCommInitRank(&communicator, 1, id, 1));
  EXPECT_NCCL(ncclInvalidArgument, nccl().ncclCommInitRank(&communicator, 0, id, 0));
  EXPECT_NCCL(ncclInvalidArgument, nccl().ncclCommInitRank(&communicator, 1, id, -1));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 2;
  EXPECT_NCCL(ncclInvalidArgument, nccl().ncclCommInitRankConfig(&communicator, 1, id, 0, &config));
  config = NCCL_CONFIG_INITIALIZER;
  config.magic = 1;
  EXPECT_NCCL(ncclInvalidArgument, nccl().ncclCommInitRankConfig(&communicator, 1, id, 0, &config));
  EXPECT_EQ(nullptr, communicator);
}

TEST_F(LifecycleTest, TwoRanksOfOneHostOnOneDeviceAreRefused) {
  RankOptions options;
  options.one_device = true;
  if (!as_rank(2, options)) return;
  ncclComm_t communicator = nullptr;
  EXPECT_NCCL(ncclInvalidUsage, nccl().ncclCommInitRank(&communicator, 2, shared_id(), rank_));
  EXPECT_NE(std::string::npos, last_error().find("Duplicate GPU"));
  exchange();
}

TEST_F(LifecycleTest, TwoHostsMayShareADevice) {
  RankOptions options;
  options.one_device = true;
  if (!as_rank(2, options)) return;
  ::setenv("NCCL_HOSTID", ("host-" + std::to_string(rank_)).c_str(), 1);
  ncclComm_t communicator = init();
  ASSERT_NE(nullptr, communicator);
  expect_works(communicator, 2);
  destroy(communicator);
}

TEST_F(LifecycleTest, ANonBlockingBeginIsInProgressUntilAllHaveCome) {
  if (!as_rank(2)) return;
  const ncclUniqueId id = shared_id();
  ncclComm_t communicator = nullptr;
  if (rank_ == 0) {
    communicator = begin_non_blocking(id);
    ncclResult_t state = ncclSuccess;
    EXPECT_NCCL(ncclSuccess, nccl().ncclCommGetAsyncError(communicator, &state));
    EXPECT_EQ(ncclInProgress, state);
    int count = 0;
    EXPECT_NCCL(ncclInvalidArgument, nccl().ncclCommCount(communicator, &count));
    const Buffer<float> data(kCount);
    EXPECT_NCCL(ncclInvalidArgument, nccl().ncclAllReduce(data.get(), data.get(), kCount, ncclFloat32,
                                                          ncclSum, communicator, stream_));
  }
  exchange();
  if (rank_ == 1) communicator = begin_non_blocking(id);
  if (rank_ == 1) {
    ASSERT_NCCL(ncclSuccess, settled(communicator));
    EXPECT_EQ((std::pair{1, 2}), rank_and_count(communicator));
  }
  exchange();
  abort(communicator);
}

TEST_F(LifecycleTest, ANonBlockingCommunicatorWorks) {
  if (!as_rank(2)) return;
  ncclComm_t communicator = begin_non_blocking(shared_id());
  ASSERT_NCCL(ncclSuccess, settled(communicator));
  expect_works(communicator, 2);
  const ncclResult_t finalized = nccl().ncclCommFinalize(communicator);
  EXPECT_TRUE(finalized == ncclSuccess || finalized == ncclInProgress);
  EXPECT_NCCL(ncclSuccess, settled(communicator));
  destroy(communicator);
}

TEST_F(LifecycleTest, AnAbortEndsABeginThatNobodyJoins) {
  if (!as_rank(2)) return;
  const ncclUniqueId id = shared_id();
  if (rank_ == 0) abort(begin_non_blocking(id));
  exchange();
}

TEST_F(LifecycleTest, AListOfIdsIsAsGoodAsOne) {
  if (!as_rank(2)) return;
  ncclUniqueId ids[] = {shared_id(), shared_id()};
  ncclComm_t communicator = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ASSERT_NCCL(ncclSuccess, nccl().ncclCommInitRankScalable(&communicator, 2, rank_, 2, ids, &config));
  expect_works(communicator, 2);
  destroy(communicator);
  EXPECT_NCCL(ncclInvalidArgument, nccl().ncclCommInitRankScalable(&communicator, 2, rank_, 3, ids, &config));
}

TEST_F(LifecycleTest, CommunicatorsBesideEachOther) {
  if (!as_rank(2)) return;
  ncclComm_t one = init();
  ncclComm_t two = init();
  expect_works(two, 2);
  expect_works(one, 2);
  destroy(one);
  expect_works(two, 2);
  destroy(two);
}

TEST_F(LifecycleTest, ASplitOrdersByKey) {
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

TEST_F(LifecycleTest, AShrinkLeavesRanksOut) {
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

TEST_F(LifecycleTest, AShrinkWithAbortEndsOperations) {
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

TEST_F(LifecycleTest, AnAbortFreesAStreamThatWaitsForAPeer) {
  if (!as_rank(2)) return;
  ncclComm_t communicator = init();
  expect_works(communicator, 2);
  const Buffer<float> data(kCount, 1.0F);
  if (rank_ == 0) {
    ASSERT_NCCL(ncclSuccess, nccl().ncclAllReduce(data.get(), data.get(), kCount, ncclFloat32, ncclSum,
                                                  communicator, stream_));
    EXPECT_EQ(CUDA_ERROR_NOT_READY, cuda().cuStreamQuery(stream_));
  }
  exchange();
  abort(communicator);
  EXPECT_TRUE(stream_ends(stream_));
}

TEST_F(LifecycleTest, AnAbortEndsAFinalizeThatWaitsForAPeer) {
  if (!as_rank(2)) return;
  ncclComm_t communicator = begin_non_blocking(shared_id());
  ASSERT_NCCL(ncclSuccess, settled(communicator));
  expect_works(communicator, 2);
  const Buffer<float> data(kCount, 1.0F);
  if (rank_ == 0) {
    const ncclResult_t issued =
        nccl().ncclAllReduce(data.get(), data.get(), kCount, ncclFloat32, ncclSum, communicator, stream_);
    EXPECT_TRUE(issued == ncclSuccess || issued == ncclInProgress);
    EXPECT_NCCL(ncclSuccess, settled(communicator));
    EXPECT_NCCL(ncclInProgress, nccl().ncclCommFinalize(communicator));
  }
  if (rank_ == 0) abort(communicator);
  exchange();  // the peer has not gone, either
  if (rank_ == 1) abort(communicator);
  EXPECT_TRUE(stream_ends(stream_));
}

TEST_F(LifecycleTest, ARevokeStopsOperationsAndRefusesMore) {
  if (!as_rank(2)) return;
  ncclComm_t communicator = init();
  expect_works(communicator, 2);
  const Buffer<float> data(kCount, 1.0F);
  if (rank_ == 0) {
    ASSERT_NCCL(ncclSuccess, nccl().ncclAllReduce(data.get(), data.get(), kCount, ncclFloat32, ncclSum,
                                                  communicator, stream_));
  }
  exchange();
  EXPECT_NCCL(ncclInvalidArgument, nccl().ncclCommRevoke(communicator, 1));
  ASSERT_NCCL(ncclSuccess, nccl().ncclCommRevoke(communicator, NCCL_REVOKE_DEFAULT));
  EXPECT_NCCL(ncclSuccess, settled(communicator));
  EXPECT_TRUE(stream_ends(stream_));
  EXPECT_NCCL(ncclInvalidUsage, nccl().ncclAllReduce(data.get(), data.get(), kCount, ncclFloat32, ncclSum,
                                                     communicator, stream_));
  EXPECT_NCCL(ncclInvalidArgument, nccl().ncclCommRevoke(communicator, NCCL_REVOKE_DEFAULT));
  EXPECT_NCCL(ncclInvalidArgument, nccl().ncclCommFinalize(communicator));
  exchange();
  ncclComm_t child = nullptr;
  ASSERT_NCCL(ncclSuccess, nccl().ncclCommSplit(communicator, 0, rank_, &child, nullptr));
  expect_works(child, 2);
  destroy(child);
  destroy(communicator);
}

TEST_F(LifecycleTest, AFinalizeFlushesAndHappensOnce) {
  if (!as_rank(2)) return;
  ncclComm_t communicator = init();
  const Buffer<float> data(kCount, 1.0F);
  ASSERT_NCCL(ncclSuccess, nccl().ncclAllReduce(data.get(), data.get(), kCount, ncclFloat32, ncclSum,
                                                communicator, stream_));
  ASSERT_NCCL(ncclSuccess, nccl().ncclCommFinalize(communicator));
  EXPECT_NCCL(ncclInvalidArgument, nccl().ncclCommFinalize(communicator));
  destroy(communicator);
  ASSERT_CUDA_OK(cuda().cuStreamSynchronize(stream_));
  EXPECT_EQ(std::vector<float>(kCount, 2.0F), data.values());
}

TEST_F(LifecycleTest, TheDeathOfAPeerIsAnErrorAndTheStreamWaitsForTheAbort) {
  RankOptions options;
  options.killed = {1};
  if (!as_rank(2, options)) return;
  ncclComm_t communicator = init();
  expect_works(communicator, 2);
  exchange();
  if (rank_ == 1) kill_self();
  const Buffer<float> data(kCount, 1.0F);
  ASSERT_NCCL(ncclSuccess, nccl().ncclAllReduce(data.get(), data.get(), kCount, ncclFloat32, ncclSum,
                                                communicator, stream_));
  const ncclResult_t error = first_error(communicator);
  EXPECT_TRUE(error == ncclRemoteError || error == ncclSystemError) << error;
  EXPECT_EQ(CUDA_ERROR_NOT_READY, cuda().cuStreamQuery(stream_));
  abort(communicator);
  EXPECT_TRUE(stream_ends(stream_));
}

TEST_F(LifecycleTest, AReceiveFromADeadPeerIsAnError) {
  RankOptions options;
  options.killed = {1};
  if (!as_rank(2, options)) return;
  ncclComm_t communicator = init();
  const Buffer<float> data(kCount, 1.0F);
  const auto message = [&] {
    return rank_ == 0 ? nccl().ncclRecv(data.get(), kCount, ncclFloat32, 1, communicator, stream_)
                      : nccl().ncclSend(data.get(), kCount, ncclFloat32, 0, communicator, stream_);
  };
  ASSERT_NCCL(ncclSuccess, message());
  ASSERT_CUDA_OK(cuda().cuStreamSynchronize(stream_));
  if (rank_ == 0) {
    ASSERT_NCCL(ncclSuccess, message());
  }
  exchange();
  if (rank_ == 1) kill_self();
  const ncclResult_t error = first_error(communicator);
  EXPECT_TRUE(error == ncclRemoteError || error == ncclSystemError) << error;
  abort(communicator);
  EXPECT_TRUE(stream_ends(stream_));
}

TEST_F(LifecycleTest, SurvivorsShrinkAwayADeadRank) {
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

class EndTest : public LifecycleTest, public testing::WithParamInterface<const char*> {
 protected:
  static void end(ncclComm_t communicator) {
    const std::string how = GetParam();
    if (how == "Finalize") {
      EXPECT_NCCL(ncclSuccess, nccl().ncclCommFinalize(communicator));
    } else if (how == "Destroy") {
      destroy(communicator);
    } else {
      abort(communicator);
    }
  }
};

// It can be seen to wait only for a while: what is wrong may pass, what is right never fails.
TEST_P(EndTest, TheEndWaitsForGraphs) {
  if (!as_rank(2)) return;
  ncclComm_t communicator = init();
  expect_works(communicator, 2);
  const Buffer<float> data(kCount, 1.0F);
  auto graph = std::make_unique<Graph>(stream_, [&] {
    EXPECT_NCCL(ncclSuccess, nccl().ncclAllReduce(data.get(), data.get(), kCount, ncclFloat32, ncclSum,
                                                  communicator, stream_));
  });
  graph->launch();
  ASSERT_CUDA_OK(cuda().cuStreamSynchronize(stream_));
  auto ended = std::async(std::launch::async, [&] { end(communicator); });
  EXPECT_EQ(std::future_status::timeout, ended.wait_for(std::chrono::milliseconds(200)));
  graph.reset();
  ended.get();
  if (std::string(GetParam()) == "Finalize") destroy(communicator);
  EXPECT_EQ(std::vector<float>(kCount, 2.0F), data.values());
}
INSTANTIATE_TEST_SUITE_P(Each, EndTest, testing::Values("Finalize", "Destroy", "Abort"),
                         [](const auto& row) { return std::string(row.param); });

TEST_F(LifecycleTest, MemoryOfNccl) {
  if (!as_rank(2)) return;
  ncclComm_t communicator = init();
  void* memory = nullptr;
  ASSERT_NCCL(ncclSuccess, nccl().ncclMemAlloc(&memory, 1000));
  void* handle = nullptr;
  EXPECT_NCCL(ncclSuccess, nccl().ncclCommRegister(communicator, memory, 1000, &handle));
  ASSERT_CUDA_OK(cuda().cuMemsetD8_v2(reinterpret_cast<CUdeviceptr>(memory), rank_ + 1, 1000));
  ASSERT_CUDA_OK(cuda().cuCtxSynchronize());
  ASSERT_NCCL(ncclSuccess,
              nccl().ncclAllReduce(memory, memory, 1000, ncclUint8, ncclSum, communicator, stream_));
  ASSERT_CUDA_OK(cuda().cuStreamSynchronize(stream_));
  std::uint8_t first = 0;
  ASSERT_CUDA_OK(cuda().cuMemcpyDtoH_v2(&first, reinterpret_cast<CUdeviceptr>(memory), 1));
  EXPECT_EQ(3, first);
  EXPECT_NCCL(ncclSuccess, nccl().ncclCommDeregister(communicator, handle));
  EXPECT_NCCL(ncclInvalidUsage, nccl().ncclCommDeregister(communicator, &first));
  EXPECT_NCCL(ncclSuccess, nccl().ncclCommWindowDeregister(communicator, nullptr));
  EXPECT_NCCL(ncclSuccess, nccl().ncclMemFree(memory));
  EXPECT_NCCL(ncclSuccess, nccl().ncclMemFree(nullptr));
  destroy(communicator);
}

// What one process has on one of several devices.
struct OnDevice {
  explicit OnDevice(int device) {
    CUcontext context = nullptr;
    EXPECT_CUDA_OK(cuda().cuDevicePrimaryCtxRetain(&context, device));
    EXPECT_CUDA_OK(cuda().cuCtxSetCurrent(context));
    EXPECT_CUDA_OK(cuda().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    data = std::make_unique<Buffer<float>>(kCount, static_cast<float>(device + 1));
  }
  CUstream stream = nullptr;
  std::unique_ptr<Buffer<float>> data;
};

TEST_F(LifecycleTest, TwoDevicesOfOneProcess) {
  if (!as_rank(1)) return;
  int devices = 0;
  ASSERT_CUDA_OK(cuda().cuDeviceGetCount(&devices));
  if (devices < 2) GTEST_SKIP() << "one device";
  ncclComm_t both[2] = {};
  ASSERT_NCCL(ncclSuccess, nccl().ncclCommInitAll(both, 2, nullptr));
  EXPECT_EQ((std::pair{1, 2}), rank_and_count(both[1]));
  const OnDevice places[] = {OnDevice(0), OnDevice(1)};
  ASSERT_NCCL(ncclSuccess, nccl().ncclGroupStart());
  for (int i = 0; i < 2; i++) {
    float* data = places[i].data->get();
    EXPECT_NCCL(ncclSuccess,
                nccl().ncclAllReduce(data, data, kCount, ncclFloat32, ncclSum, both[i], places[i].stream));
  }
  ASSERT_NCCL(ncclSuccess, nccl().ncclGroupEnd());
  for (const OnDevice& place : places) {
    ASSERT_CUDA_OK(cuda().cuStreamSynchronize(place.stream));
    EXPECT_EQ(std::vector<float>(kCount, 3.0F), place.data->values());
    EXPECT_CUDA_OK(cuda().cuStreamDestroy_v2(place.stream));
  }
  EXPECT_NCCL(ncclSuccess, nccl().ncclGroupStart());
  for (ncclComm_t one : both) EXPECT_NCCL(ncclSuccess, nccl().ncclCommDestroy(one));
  EXPECT_NCCL(ncclSuccess, nccl().ncclGroupEnd());
}

}  // namespace
}  // namespace nccl_test
