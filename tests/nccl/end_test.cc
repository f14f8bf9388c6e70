// SPDX-License-Identifier: Apache-2.0
// Tests of how communicators end: on their own, by their peers, and with graphs. The file also tests NCCL's
// own memory.
#include <chrono>
#include <future>

#include "tests/nccl/support/lifecycle.h"

namespace nccl_test {
namespace {

TEST_F(LifecycleTest, AnAbortReleasesAStreamThatWaitsForAPeer) {
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
  exchange();  // waits until rank 0 has aborted; rank 1 has not aborted yet
  if (rank_ == 1) abort(communicator);
  EXPECT_TRUE(stream_ends(stream_));
}

TEST_F(LifecycleTest, ARevokeStopsOperationsAndRefusesNewOperations) {
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

TEST_F(LifecycleTest, AFinalizeFlushesOperationsAndIsRefusedTheSecondTime) {
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

TEST_F(LifecycleTest, DeathOfAPeerCausesAnErrorAndTheStreamWaitsForTheAbort) {
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

TEST_F(LifecycleTest, AReceiveFromAKilledPeerFails) {
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

// The wait can only be observed for a limited time. A wrong implementation may pass; a correct implementation
// never fails.
TEST_P(EndTest, FinalizeWaitsForGraphs) {
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

TEST_F(LifecycleTest, NcclAllocatesRegistersAndFreesMemory) {
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

}  // namespace
}  // namespace nccl_test
