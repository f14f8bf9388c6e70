// SPDX-License-Identifier: Apache-2.0
#include "tests/nccl/support/device.h"

#include <poll.h>

#include <chrono>

#include "tests/nccl/support/ranks.h"

namespace nccl_test {

bool becomes(const std::function<bool()>& holds) {
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    ::poll(nullptr, 0, 1);
  }
  return true;
}

Gate::Gate(CUstream stream) {
  auto* opened = new std::future<void>(promise_.get_future());
  const CUhostFn wait = [](void* argument) {
    const std::unique_ptr<std::future<void>> future(static_cast<std::future<void>*>(argument));
    future->wait();
  };
  EXPECT_CUDA_OK(cuda().cuLaunchHostFunc(stream, wait, opened));
}

void Gate::open() {
  if (!opened_) promise_.set_value();
  opened_ = true;
}

ncclResult_t settled(ncclComm_t communicator) {
  ncclResult_t state = ncclInProgress;
  becomes([&] {
    EXPECT_NCCL(ncclSuccess, nccl().ncclCommGetAsyncError(communicator, &state));
    return state != ncclInProgress;
  });
  return state;
}

ncclResult_t first_error(ncclComm_t communicator) {
  ncclResult_t state = ncclSuccess;
  becomes([&] {
    EXPECT_NCCL(ncclSuccess, nccl().ncclCommGetAsyncError(communicator, &state));
    return state != ncclSuccess && state != ncclInProgress;
  });
  return state == ncclInProgress ? ncclSuccess : state;
}

bool stream_ends(CUstream stream) {
  return becomes([stream] { return cuda().cuStreamQuery(stream) != CUDA_ERROR_NOT_READY; });
}

std::size_t free_memory() {
  std::size_t free_bytes = 0;
  std::size_t total = 0;
  EXPECT_CUDA_OK(cuda().cuMemGetInfo_v2(&free_bytes, &total));
  return free_bytes;
}

bool free_memory_becomes(std::size_t bytes) {
  return becomes([bytes] { return free_memory() == bytes; });
}

ncclConfig_t non_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

}  // namespace nccl_test
