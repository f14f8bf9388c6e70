// SPDX-License-Identifier: Apache-2.0
// A 128-bit digest (XXH3) over device or host memory, printed as 32 hex digits. Threads: one per object.
#pragma once

#include <cuda.h>
#include <xxhash.h>

#include <cstdint>
#include <string>

namespace ckpt::examples {

class Digest {
 public:
  Digest();
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  void add(const void* data, std::size_t bytes);
  void add_device(CUdeviceptr data, std::size_t bytes);
  [[nodiscard]] std::string hex() const;

 private:
  XXH3_state_t* state_;
};

}  // namespace ckpt::examples
