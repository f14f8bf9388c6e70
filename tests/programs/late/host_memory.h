// SPDX-License-Identifier: Apache-2.0
// Host memory that the GPU writes to, in each of the ways that the driver offers, and what the driver answers
// about it.
// Threads: one. Ownership: RAII. Errors: a failed driver call ends the program; wrong answers are counted.
// Units: bytes.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace ckpt::examples {

enum class HostKind { kAllocated, kPortable, kMapped, kRegistered, kRegisteredPart };

class HostMemory {
 public:
  HostMemory(HostKind kind, std::uint64_t bytes);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  [[nodiscard]] std::uint64_t* words() const { return static_cast<std::uint64_t*>(memory_); }
  [[nodiscard]] CUdeviceptr device_pointer() const { return device_pointer_; }

  // How many questions have another answer than at the beginning.
  [[nodiscard]] unsigned wrong_answers() const;
  // Ends the registration and makes it again. Only while the GPU does not use the memory; nothing if it is
  // allocated.
  void register_again();

 private:
  [[nodiscard]] bool registered() const {
    return kind_ == HostKind::kRegistered || kind_ == HostKind::kRegisteredPart;
  }
  void make();

  HostKind kind_;
  std::uint64_t bytes_;
  void* block_ = nullptr;  // of registered memory: what it lies in
  void* memory_ = nullptr;
  CUresult reached_ = CUDA_SUCCESS;  // what the driver answered for its device pointer
  CUdeviceptr device_pointer_ = 0;
  unsigned flags_ = 0;  // as the driver said at the beginning
};

}  // namespace ckpt::examples
