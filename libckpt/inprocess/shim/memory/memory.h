// SPDX-License-Identifier: Apache-2.0
// The device memory of a program under the shim, as the rank's session sees it. Every allocation is a region
// (one physical allocation) at an address. The address stays reserved while the memory is released and mapped
// again. Threads: all functions may be called from any thread at any time. The exceptions are release_all,
// map_region and make_region, which the session calls while the gate is closed (no hook runs then). The
// listener is called without any lock of this folder, on the program's threads; the session may call back.
// Because of that `added` may report a region that regions() has listed already, and `freed` of one that it
// has not. Ownership: the process's one ShimMemory lives for ever; descriptors that come out belong to the
// caller, those that go in stay the caller's.
// Errors: kNotFound (no such region: freed meanwhile), kNotSupported (memory that cannot be exported),
// kOutOfMemory, kInvalidArgument, kDevice.
// Units: bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::shim {

struct RegionInfo {
  std::uint64_t id = 0;          // from 1, never used again
  std::uint64_t generation = 0;  // the counter of changes when it was made, from 1
  std::uint64_t pointer = 0;     // its first mapping, or 0: made by the program and not mapped now
  std::uint64_t bytes = 0;
  int device = 0;
};

struct RegionListener {
  std::function<void(const RegionInfo&)> added;
  // The region is no longer listed; its memory is released as soon as this returns.
  std::function<void(const RegionInfo&)> freed;
  // The device has no memory left: blocks while a mover holds freed memory; true if one has let go, so that
  // another try may help.
  std::function<bool()> wait_for_frees;
};

struct MemoryState;

class ShimMemory {
 public:
  ShimMemory();
  ~ShimMemory();
  ShimMemory(const ShimMemory&) = delete;
  ShimMemory& operator=(const ShimMemory&) = delete;

  // The physical allocations that exist now, also while their memory is released, by id.
  [[nodiscard]] std::vector<RegionInfo> regions() const;
  // At most one listener; an empty one ends it.
  void on_change(RegionListener listener);

  // Gives back what the program has freed and is only kept for later allocations: what is dead need not move.
  // Before an export begins.
  void trim();

  Result<UniqueFd> export_region(std::uint64_t id) const;

  // Unmaps and releases every region's physical memory. After an error some regions are released and others
  // are not: map_region or make_region brings the released ones back and leaves the others alone.
  Result<void> release_all();
  // Mode 1: imports and maps at the old addresses with the old access. A region that is not released is left
  // as it is. The descriptor may be closed when it returns; it is not checked that it is of this region's
  // size beyond what the driver checks.
  Result<void> map_region(std::uint64_t id, int fd);
  // Mode 2: new memory (content undefined) at the old addresses, exported for the mover to fill. Only for a
  // released region.
  Result<UniqueFd> make_region(std::uint64_t id);
  // Nothing is released: the program can run.
  [[nodiscard]] bool whole() const;

  // The state that the hooks use; private to this folder.
  [[nodiscard]] MemoryState& state() noexcept { return *state_; }

 private:
  std::unique_ptr<MemoryState> state_;
};

ShimMemory& shim_memory() noexcept;

}  // namespace ckpt::shim
