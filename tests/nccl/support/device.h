// SPDX-License-Identifier: Apache-2.0
// Helpers for the tests to use a device: buffers, a gate on a stream, graphs, and waits for a communicator's
// state.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "tests/nccl/support/libraries.h"

#define EXPECT_NCCL(expected, call)                             \
  EXPECT_EQ(static_cast<int>(expected), static_cast<int>(call)) \
      << ::nccl_test::nccl().ncclGetLastError(nullptr)
#define ASSERT_NCCL(expected, call)                             \
  ASSERT_EQ(static_cast<int>(expected), static_cast<int>(call)) \
      << ::nccl_test::nccl().ncclGetLastError(nullptr)
#define EXPECT_CUDA_OK(call) EXPECT_EQ(CUDA_SUCCESS, call)
#define ASSERT_CUDA_OK(call) ASSERT_EQ(CUDA_SUCCESS, call)

namespace nccl_test {

// Device memory for a number of elements.
template <typename T>
class Buffer {
 public:
  explicit Buffer(const std::vector<T>& values) : count_(values.size()) {
    EXPECT_CUDA_OK(cuda().cuMemAlloc_v2(&address_, bytes()));
    write(values);
  }
  explicit Buffer(std::size_t count, T value = T{}) : Buffer(std::vector<T>(count, value)) {}
  ~Buffer() { cuda().cuMemFree_v2(address_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void write(const std::vector<T>& values) {
    EXPECT_CUDA_OK(cuda().cuMemcpyHtoD_v2(address_, values.data(), bytes()));
  }
  [[nodiscard]] std::vector<T> values() const {
    std::vector<T> out(count_);
    EXPECT_CUDA_OK(cuda().cuMemcpyDtoH_v2(out.data(), address_, bytes()));
    return out;
  }
  [[nodiscard]] T* get() const { return reinterpret_cast<T*>(address_); }
  [[nodiscard]] std::size_t bytes() const { return count_ * sizeof(T); }

 private:
  std::size_t count_;
  CUdeviceptr address_ = 0;
};

// A gate that blocks a stream until the gate is opened.
class Gate {
 public:
  explicit Gate(CUstream stream);
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void open();

 private:
  std::promise<void> promise_;
  bool opened_ = false;
};

// A graph of the work that `record` puts on a stream.
class Graph {
 public:
  template <typename F>
  Graph(CUstream stream, F&& record) : stream_(stream) {
    CUgraph graph = nullptr;
    EXPECT_CUDA_OK(cuda().cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    record();
    EXPECT_CUDA_OK(cuda().cuStreamEndCapture(stream, &graph));
    EXPECT_CUDA_OK(cuda().cuGraphInstantiateWithFlags(&executable_, graph, 0));
    EXPECT_CUDA_OK(cuda().cuGraphDestroy(graph));
  }
  ~Graph() { EXPECT_CUDA_OK(cuda().cuGraphExecDestroy(executable_)); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch() { EXPECT_CUDA_OK(cuda().cuGraphLaunch(executable_, stream_)); }

 private:
  CUstream stream_;
  CUgraphExec executable_ = nullptr;
};

// Waits until `holds` is true by polling, since neither NCCL nor the driver sends a notification. Returns
// false at the deadline.
bool becomes(const std::function<bool()>& holds);
// Returns the state of a communicator once it is no longer ncclInProgress. Returns ncclInProgress at the
// deadline.
ncclResult_t settled(ncclComm_t communicator);
// Returns the first error of a working communicator. Returns ncclSuccess at the deadline.
ncclResult_t first_error(ncclComm_t communicator);
bool stream_ends(CUstream stream);  // waits until the stream's work has ended; false at the deadline
std::size_t free_memory();
// Waits until `bytes` are free. Returns false at the deadline.
bool free_memory_becomes(std::size_t bytes);

ncclConfig_t non_blocking();
inline std::string last_error() {
  return nccl().ncclGetLastError(nullptr);
}

}  // namespace nccl_test
