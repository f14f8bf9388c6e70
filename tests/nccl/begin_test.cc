// SPDX-License-Identifier: Apache-2.0
// Tests of how communicators begin, and of their answers to queries.
#include <cstdlib>

#include "tests/nccl/support/lifecycle.h"

namespace nccl_test {
namespace {

TEST_F(LifecycleTest, VersionAndErrorTextsAreReported) {
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

TEST_F(LifecycleTest, ACommunicatorReportsItsRanks) {
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

TEST_F(LifecycleTest, ACommunicatorOfOneRankWorks) {
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

TEST_F(LifecycleTest, InvalidRanksAndConfigurationsAreRefused) {
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

TEST_F(LifecycleTest, TwoRanksOfAHostOnOneDeviceAreRefused) {
  RankOptions options;
  options.one_device = true;
  if (!as_rank(2, options)) return;
  ncclComm_t communicator = nullptr;
  EXPECT_NCCL(ncclInvalidUsage, nccl().ncclCommInitRank(&communicator, 2, shared_id(), rank_));
  EXPECT_NE(std::string::npos, last_error().find("Duplicate GPU"));
  exchange();
}

TEST_F(LifecycleTest, RanksOfTwoHostsMayShareADevice) {
  RankOptions options;
  options.one_device = true;
  if (!as_rank(2, options)) return;
  ::setenv("NCCL_HOSTID", ("host-" + std::to_string(rank_)).c_str(), 1);
  ncclComm_t communicator = init();
  ASSERT_NE(nullptr, communicator);
  expect_works(communicator, 2);
  destroy(communicator);
}

TEST_F(LifecycleTest, ANonBlockingInitIsInProgressUntilAllRanksJoin) {
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

TEST_F(LifecycleTest, AnAbortEndsAnInitThatNoOtherRankJoins) {
  if (!as_rank(2)) return;
  const ncclUniqueId id = shared_id();
  if (rank_ == 0) abort(begin_non_blocking(id));
  exchange();
}

TEST_F(LifecycleTest, InitAcceptsAListOfIds) {
  if (!as_rank(2)) return;
  ncclUniqueId ids[] = {shared_id(), shared_id()};
  ncclComm_t communicator = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ASSERT_NCCL(ncclSuccess, nccl().ncclCommInitRankScalable(&communicator, 2, rank_, 2, ids, &config));
  expect_works(communicator, 2);
  destroy(communicator);
  EXPECT_NCCL(ncclInvalidArgument, nccl().ncclCommInitRankScalable(&communicator, 2, rank_, 3, ids, &config));
}

TEST_F(LifecycleTest, TwoCommunicatorsWorkIndependently) {
  if (!as_rank(2)) return;
  ncclComm_t one = init();
  ncclComm_t two = init();
  expect_works(two, 2);
  expect_works(one, 2);
  destroy(one);
  expect_works(two, 2);
  destroy(two);
}

// The stream and data of one process on one of several devices.
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

TEST_F(LifecycleTest, TwoDevicesOfOneProcessFormACommunicator) {
  RankOptions options;
  options.devices = 2;
  if (!as_rank(1, options)) return;
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
