// SPDX-License-Identifier: Apache-2.0
// Memory pools and memory that is allocated and freed in a stream's order. What is freed is kept, and given
// out again on the same stream at once, elsewhere when its stream has come to the free. Beyond the pool's
// release threshold it goes back to the device at the next synchronization or when memory is short.
//
// Threads: all; a lock of its own, taken before Process::lock. Errors: CUresult.
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
  Pool(int ordinal, std::uint64_t most) : ordinal_(ordinal), most_(most) {}
  [[nodiscard]] int ordinal() const { return ordinal_; }

  CUresult allocate(Context* context, Stream* stream, std::uint64_t bytes, std::uint64_t* address);
  bool has(std::uint64_t address);
  // The stream comes to the free after `sequence`.
  void free_after(std::uint64_t address, Context* context, int slot, std::uint64_t sequence);
  // The program has freed it without a stream.
  void forget(std::uint64_t address);
  // Gives what is free, and done, back to the device until no more than `keep` is reserved.
  void trim(std::uint64_t keep);
  // Gives back, at a synchronization, the memory above the threshold.
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
  // The memory of a context goes with it, and its addresses may be in other use by now.
  void forget_dead();
  bool reuse(Context* context, int slot, std::uint64_t bytes, std::uint64_t* address);
  void count(std::int64_t reserved, std::int64_t used);

  int ordinal_;
  std::uint64_t most_;
  std::map<std::uint64_t, Block> live_;
  std::vector<Free> free_;
  std::uint64_t threshold_ = 0;
  int reuse_[3] = {1, 1, 1};
  std::uint64_t reserved_ = 0;
  std::uint64_t reserved_high_ = 0;
  std::uint64_t used_ = 0;
  std::uint64_t used_high_ = 0;
};

// All pools of the process.
std::recursive_mutex& pools_lock();
void sweep_pools();                           // at a synchronization
bool shrink_pools();                          // memory is short: gives back all; false: there was nothing
void forget_in_pools(std::uint64_t address);  // freed without a stream

}  // namespace cudasim
