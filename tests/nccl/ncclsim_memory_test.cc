// SPDX-License-Identifier: Apache-2.0
// Tests of memory that communicators use, and of resources that they leave behind.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "tests/nccl/support/ncclsim.h"

namespace nccl_test {
namespace {

TEST_F(NcclsimTest, ACommunicatorUsesDeviceMemory) {
  if (!as_rank(1, with("NCCLSIM_DEVICE_MEMORY", "20971520"))) return;
  const std::size_t before = free_memory();
  communicator_ = init();
  EXPECT_TRUE(free_memory_becomes(before - (std::size_t{20} << 20)));
  EXPECT_NCCL(ncclSuccess, nccl().ncclCommDestroy(communicator_));
  EXPECT_TRUE(free_memory_becomes(before));
}

TEST_F(NcclsimTest, ImportedMemoryOutlivesItsExporter) {
  if (!as_rank(2, with("NCCLSIM_IMPORTS", "1"))) return;
  const std::size_t before = free_memory();
  communicator_ = init();
  ASSERT_NCCL(ncclSuccess, all_reduce());
  sync();
  data_.reset();
  exchange();
  if (rank_ == 1) {
    EXPECT_NCCL(ncclSuccess, nccl().ncclCommAbort(communicator_));
    EXPECT_TRUE(free_memory_becomes(before - (std::size_t{2} << 20)));  // rank 0 still holds this memory
  }
  exchange();
  if (rank_ == 0) {
    EXPECT_NCCL(ncclSuccess, nccl().ncclCommAbort(communicator_));
  }
  exchange();
  EXPECT_TRUE(free_memory_becomes(before));
}

template <typename F>
F driver_function(const char* name) {
  return reinterpret_cast<F>(::dlsym(::dlopen("libcuda.so.1", RTLD_NOW), name));
}

// Takes the driver's checkpoint of another process; the process then continues.
CUresult checkpoint(int pid) {
  const auto lock = driver_function<decltype(&::cuCheckpointProcessLock)>("cuCheckpointProcessLock");
  const auto save =
      driver_function<decltype(&::cuCheckpointProcessCheckpoint)>("cuCheckpointProcessCheckpoint");
  const auto restore = driver_function<decltype(&::cuCheckpointProcessRestore)>("cuCheckpointProcessRestore");
  const auto unlock = driver_function<decltype(&::cuCheckpointProcessUnlock)>("cuCheckpointProcessUnlock");
  CUcheckpointLockArgs locking{};
  locking.timeoutMs = 10000;
  EXPECT_CUDA_OK(lock(pid, &locking));
  CUcheckpointCheckpointArgs saving{};
  const CUresult result = save(pid, &saving);
  CUcheckpointRestoreArgs restoring{};
  if (result == CUDA_SUCCESS) {
    EXPECT_CUDA_OK(restore(pid, &restoring));
  }
  CUcheckpointUnlockArgs unlocking{};
  EXPECT_CUDA_OK(unlock(pid, &unlocking));
  return result;
}

TEST_F(NcclsimTest, ImportedMemoryPreventsACheckpointUntilTheCommunicatorIsDestroyed) {
  if (!as_rank(2, with("NCCLSIM_IMPORTS", "1"))) return;
  communicator_ = init();
  ASSERT_NCCL(ncclSuccess, all_reduce());
  sync();
  const int pid = std::atoi(exchange(std::to_string(::getpid()))[0].c_str());
  if (rank_ == 1) {
    EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, checkpoint(pid));
  }
  end();
  exchange();
  if (rank_ == 1) {
    EXPECT_EQ(CUDA_SUCCESS, checkpoint(pid));
  }
  exchange();
  EXPECT_EQ(2, data_->values()[0]);
  communicator_ = init();  // the driver works, and a new communicator works
  ASSERT_NCCL(ncclSuccess, all_reduce());
  sync();
  EXPECT_EQ(4, data_->values()[0]);
  end();
}

std::size_t entries_of(const char* folder) {
  const auto all = std::filesystem::directory_iterator(folder);
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

// Checks that no descriptors and threads remain, because a checkpoint of the process would encounter them.
TEST_F(NcclsimTest, DestroyingACommunicatorLeavesNoResources) {
  if (!as_rank(2, with("NCCLSIM_IMPORTS", "1"))) return;
  std::size_t descriptors = 0;
  std::size_t threads = 0;
  for (int i = 0; i < 5; i++) {
    communicator_ = init();
    ncclComm_t child = nullptr;
    ASSERT_NCCL(ncclSuccess, nccl().ncclCommSplit(communicator_, 0, 0, &child, nullptr));
    ASSERT_NCCL(ncclSuccess, all_reduce());
    sync();
    exchange();
    EXPECT_NCCL(ncclSuccess, nccl().ncclCommDestroy(child));
    EXPECT_NCCL(ncclSuccess,
                i == 1 ? nccl().ncclCommAbort(communicator_) : nccl().ncclCommDestroy(communicator_));
    if (i > 0) continue;
    // The first round also opens the descriptors and threads that remain, which belong to the driver.
    descriptors = entries_of("/proc/self/fd");
    threads = entries_of("/proc/self/task");
  }
  EXPECT_TRUE(becomes([&] { return entries_of("/proc/self/task") <= threads; })) << threads;
  EXPECT_TRUE(becomes([&] { return entries_of("/proc/self/fd") <= descriptors; })) << descriptors;
}

}  // namespace
}  // namespace nccl_test
