// SPDX-License-Identifier: Apache-2.0
// The streams of one thread: half of them take part in the default stream's ordering, half do not. The last
// one is the thread's default stream, if the driver has it.
// Threads: the one that created the streams. Ownership: the streams that this class created.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "tools/examples/common/gpu.h"

namespace ckpt::examples {

class Streams {
 public:
  Streams(unsigned count, bool with_per_thread) : made_(count) {
    for (unsigned i = 0; i < count; ++i) {
      CUstream stream = nullptr;
      check(cuStreamCreate(&stream, i % 2 == 0 ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT),
            "cuStreamCreate");
      streams_.push_back(stream);
    }
    if (with_per_thread) streams_.push_back(CU_STREAM_PER_THREAD);
  }
  ~Streams() {
    for (unsigned i = 0; i < made_; ++i) cuStreamDestroy(streams_[i]);
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  [[nodiscard]] std::size_t size() const noexcept { return streams_.size(); }
  CUstream operator[](std::size_t i) const { return streams_[i]; }
  // Returns the first stream. It does not wait for the default stream, so it may be captured.
  [[nodiscard]] CUstream for_capture() const { return streams_[0]; }
  void synchronize() const {
    for (CUstream stream : streams_) check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  }
  // Orders two streams: later work on `later` waits for all work that is already on `earlier`.
  static void order(CUstream earlier, CUstream later) {
    CUevent event = nullptr;
    check(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    check(cuEventRecord(event, earlier), "cuEventRecord");
    check(cuStreamWaitEvent(later, event, CU_EVENT_WAIT_DEFAULT), "cuStreamWaitEvent");
    check(cuEventDestroy(event), "cuEventDestroy");
  }

 private:
  unsigned made_;
  std::vector<CUstream> streams_;
};

// Returns the number of blocks for `bytes` bytes of content.
inline unsigned blocks_for(std::uint64_t bytes) {
  const std::uint64_t blocks = (bytes / 8 + 255) / 256;
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks > 256 ? 256 : blocks);
}

template <typename... Arguments>
void launch_on(CUstream stream, CUfunction kernel, unsigned blocks, unsigned threads,
               Arguments... arguments) {
  void* pointers[] = {static_cast<void*>(&arguments)...};
  check(cuLaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, pointers, nullptr), "cuLaunchKernel");
}

}  // namespace ckpt::examples
