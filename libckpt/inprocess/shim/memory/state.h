// SPDX-License-Identifier: Apache-2.0
// All that the shim knows of the process's device memory, and the two operations everything stands on: making
// a region and letting go of one. Private to this folder.
// Threads: `mutex` guards all but `driver` and `quota`; it is not held over making, freeing or synchronizing,
// nor over the listener. Ownership: one MemoryState per ShimMemory. Errors: the driver's codes. Units: bytes.
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

// Where the allocations of one context, or of one pool, come from.
struct Heap {
  Owner owner;
  SlabHeap slabs;
  std::optional<std::uint64_t>
      spare;                // address of one slab in which nothing is taken, kept for the next allocation
  CUevent pulse = nullptr;  // never recorded: a query shows only whether the context is intact
};

// An allocation of the program: all of a large region or a piece of a slab.
struct Block {
  std::uint64_t bytes = 0;  // as the driver would report it
  std::uint64_t region = 0;
  std::uint64_t number = 0;  // counts the blocks of the process: CU_POINTER_ATTRIBUTE_BUFFER_ID
  Owner owner;
  std::shared_ptr<const NotMovable>
      handed_out;  // by cuIpcGetMemHandle: other processes may open it while it is there
};

// A block that cuMemFreeAsync has freed on a stream whose earlier work may still use it.
struct FreedBlock {
  std::uint64_t address = 0;
  Block block;
  std::uint64_t stream = 0;     // the driver's number for it; 0: not known
  CUcontext context = nullptr;  // the stream's
  CUevent event = nullptr;      // follows that work; null: it has ended
};

// One memory pool of the program. Its handle is the driver's own, whose pool stays empty.
struct Pool {
  CUmemoryPool handle = nullptr;
  Owner owner;  // .pool is this
  std::uint64_t threshold = 0;
  std::uint64_t most = 0;  // 0: no limit
  std::uint64_t used = 0;
  std::uint64_t used_high = 0;
  std::uint64_t reserved_high = 0;
  std::multimap<std::uint64_t, std::uint64_t> kept;  // large regions without a block: bytes, id
  std::vector<FreedBlock> freed;
};

struct MemoryState {
  explicit MemoryState(const RealDriver& real_driver)
      : driver(real_driver), quota(Quota::limit_from_environment()) {}

  const RealDriver& driver;
  Quota quota;

  mutable std::shared_mutex mutex;
  RegionStore regions;
  std::map<std::uint64_t, Block> blocks;  // by address
  std::map<const void*, Heap> heaps;      // by the owner's key
  std::map<CUmemoryPool, std::unique_ptr<Pool>> pools;
  std::vector<std::unique_ptr<Pool>> ended_pools;  // destroyed while memory of theirs was in use
  PeerTable peers;
  std::map<int, DeviceFacts> facts;
  std::map<int, CUcontext> primaries;  // as last retained, by device
  std::uint64_t blocks_made = 0;

  // The block around this address, or blocks.end(). With the mutex held.
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

// Physical memory for `region` (made, bytes, device and flags are set) within the quota. When there is none
// left, what is kept for later goes first, then what a mover still holds.
CUresult make_physical(MemoryState& state, Region& region);
// Memory for the owner's blocks: mapped at an address of its own, reached by the owner's device and peers, in
// the table, reported to the listener.
CUresult make_block_region(MemoryState& state, const Owner& owner, RegionUse use, std::uint64_t bytes,
                           Region* out);
// Informs the listener, unmaps, releases, and frees the addresses of memory that is not the program's own.
// `region` is out of the table.
void drop_region(MemoryState& state, const Region& region);
void drop_regions(MemoryState& state, const std::vector<Region>& regions);

// Gives back what is kept for later allocations. True if there was something.
bool drop_spares(MemoryState& state);
// The bytes that are kept for later allocations on this device.
[[nodiscard]] std::uint64_t spare_bytes(const MemoryState& state, int device);

}  // namespace ckpt::shim
