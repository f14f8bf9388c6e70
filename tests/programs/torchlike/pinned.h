// SPDX-License-Identifier: Apache-2.0
// Pinned host memory in blocks of powers of two. A block is reused once its stream has finished with the
// block.
// Threads: one. Errors end the program.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

namespace ckpt::examples {

class PinnedCache {
 public:
  PinnedCache() = default;
  ~PinnedCache();
  PinnedCache(const PinnedCache&) = delete;
  PinnedCache& operator=(const PinnedCache&) = delete;
  std::uint64_t* get(std::uint64_t bytes);
  // Gives a block back to the cache. The stream's earlier work may still use the block.
  void put(std::uint64_t* block, CUstream stream);

 private:
  struct Block {
    std::uint64_t* at = nullptr;
    std::uint64_t bytes = 0;
    CUevent done = nullptr;
    bool is_taken = false;
  };
  std::vector<Block> blocks_;
};

}  // namespace ckpt::examples
