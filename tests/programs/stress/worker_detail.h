// SPDX-License-Identifier: Apache-2.0
// Constants and types that worker.cc and worker_checks.cc share. Threads: see each.
#pragma once

#include <atomic>
#include <cstdint>

#include "tests/programs/stress/worker.h"

namespace ckpt::examples {

constexpr const char* kModule = "stress_kernels";
constexpr std::uint64_t kWindow = std::uint64_t{256} << 10;  // bytes per copy to or from the host
constexpr unsigned kBlockThreads = 64;

// The driver's thread sets the members. The worker reads them after waiting for the stream.
struct Worker::Callback {
  ~Callback() { cuMemFreeHost(found); }
  std::uint8_t* found = nullptr;  // pinned; a copy on the same stream fills the memory first
  std::uint64_t bytes = 0;
  std::uint64_t from = 0;  // offset of the first byte in the buffer
  std::uint64_t seed = 0;
  std::uint32_t version = 0;
  std::atomic<bool> called = false;
  std::atomic<bool> equal = false;
};

}  // namespace ckpt::examples
