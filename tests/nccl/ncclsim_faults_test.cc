// SPDX-License-Identifier: Apache-2.0
// Tests of faults on request.
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/nccl/support/ncclsim.h"

namespace nccl_test {
namespace {

class FaultTest : public NcclsimTest {
 protected:
  static std::string file() {
    return std::filesystem::temp_directory_path() / ("ncclsim-" + std::to_string(::getpid()));
  }
  void TearDown() override {
    std::filesystem::remove(file());
    NcclsimTest::TearDown();
  }
  static void order(const std::string& lines) {
    std::ofstream out(file());
    out << lines;
  }
};

TEST_F(FaultTest, AnAbortEndsAnEndlessInit) {
  if (!as_rank(1, with("NCCLSIM_INIT_ENDLESS", "1"))) return;
  ncclConfig_t config = non_blocking();
  EXPECT_NCCL(ncclInProgress, nccl().ncclCommInitRankConfig(&communicator_, 1, shared_id(), 0, &config));
  // The state can be observed only for a limited time.
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress && std::chrono::steady_clock::now() < until)
    EXPECT_NCCL(ncclSuccess, nccl().ncclCommGetAsyncError(communicator_, &state));
  EXPECT_EQ(ncclInProgress, state);
  EXPECT_NCCL(ncclInvalidArgument, nccl().ncclCommDestroy(communicator_));
  EXPECT_NCCL(ncclSuccess, nccl().ncclCommAbort(communicator_));
}

TEST_F(FaultTest, ADelayedInitIsInProgressForTheConfiguredTime) {
  if (!as_rank(1)) return;
  ::setenv("NCCLSIM_FAULTS", file().c_str(), 1);
  order("init-delay 100 comm=slow\n");
  ncclConfig_t config = non_blocking();
  config.commName = "slow";
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_NCCL(ncclInProgress, nccl().ncclCommInitRankConfig(&communicator_, 1, shared_id(), 0, &config));
  EXPECT_NCCL(ncclSuccess, settled(communicator_));
  EXPECT_LE(std::chrono::milliseconds(100), std::chrono::steady_clock::now() - begun);
  EXPECT_NCCL(ncclSuccess, nccl().ncclCommDestroy(communicator_));
}

TEST_F(FaultTest, AnAbortOfTheParentEndsAnEndlessSplit) {
  if (!as_rank(1)) return;
  ::setenv("NCCLSIM_FAULTS", file().c_str(), 1);
  ncclConfig_t config = non_blocking();
  EXPECT_NCCL(ncclInProgress, nccl().ncclCommInitRankConfig(&communicator_, 1, shared_id(), 0, &config));
  ASSERT_NCCL(ncclSuccess, settled(communicator_));
  order("init-endless\n");
  ncclComm_t child = nullptr;
  EXPECT_NCCL(ncclInProgress, nccl().ncclCommSplit(communicator_, 0, 0, &child, nullptr));
  EXPECT_NCCL(ncclSuccess, nccl().ncclCommAbort(communicator_));
  EXPECT_EQ(nullptr, child);
}

TEST_F(FaultTest, AFaultFileInjectsAnError) {
  if (!as_rank(2)) return;
  ::setenv("NCCLSIM_FAULTS", file().c_str(), 1);
  communicator_ = init();
  ASSERT_NCCL(ncclSuccess, all_reduce());
  sync();
  order("async-error 3 rank=1\nno fault at all\nasync-error 6 comm=another\n");
  if (rank_ == 1) expect_error(ncclInternalError, "NCCLSIM_FAULTS");
  if (rank_ == 0) {
    EXPECT_NCCL(ncclSuccess, settled(communicator_));
  }
  order("async-error 2 rank=0\n");
  if (rank_ == 0) expect_error(ncclSystemError, "NCCLSIM_FAULTS");
  end();
}

TEST_F(FaultTest, AFaultFileDisconnectsAPeer) {
  if (!as_rank(2)) return;
  ::setenv("NCCLSIM_FAULTS", file().c_str(), 1);
  communicator_ = init();
  ASSERT_NCCL(ncclSuccess, all_reduce());
  sync();
  if (rank_ == 0) order("drop-peer 1\n");
  exchange();
  ASSERT_NCCL(ncclSuccess, all_reduce());
  expect_error(ncclRemoteError, "peer");
  end();
}

}  // namespace
}  // namespace nccl_test
