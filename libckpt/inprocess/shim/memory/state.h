// SPDX-License-Identifier: Apache-2.0
// The shim's data about the process's device memory, and the two operations on which the rest is built:
// making a region and releasing a region. Private to this folder.
// Threads: `mutex` guards everything except `driver` and `quota`. It is not held while making, freeing or
// synchronizing, nor while calling the listener. Ownership: one MemoryState per ShimMemory. Errors: the
// driver's codes. Units: bytes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "libckpt/inprocess/shim/core/job_state.h"
#include "libckpt/inprocess/shim/core/real_driver.h"
#include "libckpt/inprocess/shim/memory/memory.h"
#include "libckpt/inprocess/shim/memory/peers.h"
#include "libckpt/inprocess/shim/memory/physical.h"
#include "libckpt/inprocess/shim/memory/quota.h"
#include "libckpt/inprocess/shim/memory/region_store.h"
#include "libckpt/inprocess/shim/memory/slab_heap.h"

namespace ckpt::shim {

// The source of the allocations of one context, or of one pool.
struct Heap {
  Owner owner;
  SlabHeap slabs;
  std::optional<std::uint64_t>
      spare;                // the address of one empty slab that is retained for the next allocation
  CUevent pulse = nullptr;  // an event that is never recorded; a query of it only shows whether the context
                            // is intact
};

// An allocation of the program: all of a large region or a piece of a slab.
struct Block {
  std::uint64_t bytes = 0;  // the size that the driver would report
  std::uint64_t region = 0;
  std::uint64_t number = 0;  // the block's number, counted over the whole process, for
                             // CU_POINTER_ATTRIBUTE_BUFFER_ID
  Owner owner;
  std::shared_ptr<const NotMovable>
      handed_out;  // set once cuIpcGetMemHandle has shared the block: other processes may open the block
                   // while it exists
};

// A block that cuMemFreeAsync has freed on a stream whose earlier work may still use the block.
struct FreedBlock {
  std::uint64_t address = 0;
  Block block;
  std::uint64_t stream = 0;     // the driver's number for the stream; 0 if it is not known
  CUcontext context = nullptr;  // the context of the stream
  CUevent event = nullptr;  // an event recorded after the stream's earlier work; null if that work has ended
};

// One memory pool of the program. Its handle is that of a pool of the driver, which stays empty.
struct Pool {
  CUmemoryPool handle = nullptr;
  Owner owner;  // the owner of the pool's memory, whose .pool is this pool
  std::uint64_t threshold = 0;
  std::uint64_t limit = 0;  // the limit on the pool's memory; 0 if there is none
  std::uint64_t used = 0;
  std::uint64_t used_high = 0;
  std::uint64_t reserved_high = 0;
  std::multimap<std::uint64_t, std::uint64_t> cached;  // the ids of large regions without a block, by the
                                                       // regions' bytes
  std::vector<FreedBlock> freed;
};

struct MemoryState {
  explicit MemoryState(const RealDriver& real_driver)
      : driver(real_driver), quota(Quota::limit_from_environment()) {}

  const RealDriver& driver;
  Quota quota;

  mutable std::shared_mutex mutex;
  RegionStore regions;
  std::map<std::uint64_t, Block> blocks;  // the blocks by address
  std::map<const void*, Heap> heaps;      // the heaps by the owner's key
  std::map<CUmemoryPool, std::unique_ptr<Pool>> pools;
  std::vector<std::unique_ptr<Pool>> ended_pools;  // pools that were destroyed while their memory was in use
  PeerTable peers;
  std::map<int, DeviceFacts> facts;
  std::map<int, CUcontext> primaries;  // the primary contexts by device, each as it was last retained
  std::uint64_t blocks_made = 0;

  // Returns the block that contains this address, or blocks.end(). Call it with the mutex held.
  [[nodiscard]] std::map<std::uint64_t, Block>::const_iterator block_at(std::uint64_t address) const;
  [[nodiscard]] DeviceFacts facts_for(int device);

  void listen(RegionListener listener);
  [[nodiscard]] std::shared_ptr<const RegionListener> listener() const;
  void report_added(const RegionInfo& info) const;
  void report_freed(const RegionInfo& info) const;

 private:
  mutable std::mutex listener_mutex_;
  std::shared_ptr<const RegionListener> listener_ = std::make_shared<RegionListener>();
};

[[nodiscard]] RegionInfo info_of(const Region& region);

// Makes physical memory for `region` (made, bytes, device and flags are set) within the quota. If none is
// left, memory retained for later allocations is released first. After that, it waits for memory that a mover
// still holds.
CUresult make_physical(MemoryState& state, Region& region);
// Makes memory for the owner's blocks. The memory is mapped at its own address, accessible to the owner's
// device and peers, in the table, and reported to the listener.
CUresult make_block_region(MemoryState& state, const Owner& owner, RegionUse use, std::uint64_t bytes,
                           Region* out);
// Notifies the listener, unmaps and releases the region's memory, and frees its addresses if the memory is
// not the program's own. `region` must already be removed from the table.
void drop_region(MemoryState& state, const Region& region);
void drop_regions(MemoryState& state, const std::vector<Region>& regions);

// Releases memory that is retained for later allocations. Returns true if there was any.
bool drop_spares(MemoryState& state);
// Returns the bytes that are retained for later allocations on this device.
[[nodiscard]] std::uint64_t spare_bytes(const MemoryState& state, int device);

}  // namespace ckpt::shim
