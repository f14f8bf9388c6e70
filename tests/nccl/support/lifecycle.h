// SPDX-License-Identifier: Apache-2.0
// The fixture of tests of communicators, with the operations that each test uses.
#pragma once

#include <string>
#include <utility>

#include "tests/nccl/support/device.h"
#include "tests/nccl/support/ranks.h"

namespace nccl_test {

inline constexpr std::size_t kCount = 256;

class LifecycleTest : public RanksTest {
 protected:
  // Checks an all-reduce of ones, whose result is the number of ranks.
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

}  // namespace nccl_test
