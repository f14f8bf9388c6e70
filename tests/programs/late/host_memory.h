// SPDX-License-Identifier: Apache-2.0
// Host memory that the GPU writes to, in each way that the driver offers, and the driver's answers about this
// memory.
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

  // Returns how many queries give a different answer than at the beginning.
  [[nodiscard]] unsigned wrong_answers() const;
  // Ends the registration and registers the memory again. Call this only while the GPU does not use the
  // memory. Does nothing if the memory is allocated.
  void register_again();

 private:
  [[nodiscard]] bool registered() const {
    return kind_ == HostKind::kRegistered || kind_ == HostKind::kRegisteredPart;
  }
  void make();

  HostKind kind_;
  std::uint64_t bytes_;
  void* block_ = nullptr;  // the block that contains the registered memory
  void* memory_ = nullptr;
  CUresult reached_ = CUDA_SUCCESS;  // the driver's result for the device pointer of the memory
  CUdeviceptr device_pointer_ = 0;
  unsigned flags_ = 0;  // the flags that the driver reported at the beginning
};

}  // namespace ckpt::examples
