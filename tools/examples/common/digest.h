// SPDX-License-Identifier: Apache-2.0
// A 128-bit digest (XXH3) over host memory, printed as 32 hex digits. For device memory use add_device() of
// gpu.h.
// Threads: one per object.
#pragma once

#include <xxhash.h>

#include <cstddef>
#include <string>

namespace ckpt::examples {

class Digest {
 public:
  Digest();
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  void add(const void* data, std::size_t bytes);
  [[nodiscard]] std::string hex() const;

 private:
  XXH3_state_t* state_;
};

}  // namespace ckpt::examples
