// SPDX-License-Identifier: Apache-2.0
// Memory pools, and memory that is allocated and freed in a stream's order. Freed memory stays in the pool.
// The same stream may reuse it at once; other streams reuse it after its stream has reached the free. Memory
// beyond the pool's release threshold returns to the device at the next synchronization or when memory is
// short.
//
// Threads: all; the pools' own lock, taken before Process::lock. Errors: CUresult.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "tests/simulators/cudasim/driver/context.h"

namespace cudasim {

class Pool {
 public:
  Pool(int ordinal, std::uint64_t limit) : ordinal_(ordinal), limit_(limit) {}
  [[nodiscard]] int ordinal() const { return ordinal_; }

  CUresult allocate(Context* context, Stream* stream, std::uint64_t bytes, std::uint64_t* address);
  bool has(std::uint64_t address);
  // Frees the block when the stream has completed `sequence`.
  void free_after(std::uint64_t address, Context* context, int slot, std::uint64_t sequence);
  // Removes a block that the program has freed without a stream.
  void forget(std::uint64_t address);
  // Gives free memory whose work has completed back to the device, until at most `keep` bytes are reserved.
  void trim(std::uint64_t keep);
  // Gives the memory above the threshold back to the device. A synchronization calls this function.
  void sweep() { trim(threshold_); }
  CUresult get(CUmemPool_attribute attribute, void* value);
  CUresult set(CUmemPool_attribute attribute, const void* value);
  [[nodiscard]] bool empty() {
    forget_dead();
    return live_.empty();
  }

 private:
  struct Block {
    std::uint64_t bytes;
    Context* context;
  };
  struct Free {
    std::uint64_t address;
    Block block;
    int slot;
    std::uint64_t sequence;
  };
  [[nodiscard]] static bool done(const Free& free) {
    return free.block.context->completed(free.slot, free.sequence);
  }
  // Removes the memory of destroyed contexts. Their memory no longer exists, and its addresses may have been
  // reused.
  void forget_dead();
  bool reuse(Context* context, int slot, std::uint64_t bytes, std::uint64_t* address);
  void count(std::int64_t reserved, std::int64_t used);

  int ordinal_;
  std::uint64_t limit_;
  std::map<std::uint64_t, Block> live_;
  std::vector<Free> free_;
  std::uint64_t threshold_ = 0;
  int reuse_[3] = {1, 1, 1};
  std::uint64_t reserved_ = 0;
  std::uint64_t reserved_high_ = 0;
  std::uint64_t used_ = 0;
  std::uint64_t used_high_ = 0;
};

// Returns the lock of all pools of the process.
std::recursive_mutex& pools_lock();
void sweep_pools();   // call this at a synchronization
bool shrink_pools();  // called when memory is short: returns all free memory; false if there was none
void forget_in_pools(std::uint64_t address);  // removes memory that was freed without a stream from the pools

}  // namespace cudasim
