// SPDX-License-Identifier: Apache-2.0
// The device memory of a program under the shim, as the rank's session sees it. Every allocation is a region
// (one physical allocation) at an address. The address stays reserved while the memory is released and mapped
// again.
// Threads: all functions may be called from any thread at any time. The exceptions are release_all,
// map_region and make_region, which the session calls while the gate is closed (no hook runs then). The
// listener is called without any lock of this folder, on the program's threads, and the session may call
// back. `added` may therefore report a region that regions() has already listed, and `freed` a region that it
// has not. Ownership: the process's one ShimMemory is never destroyed. Returned descriptors belong to the
// caller, and passed descriptors stay the caller's. Errors: kNotFound (no such region: freed meanwhile),
// kNotSupported (memory that cannot be exported), kOutOfMemory, kInvalidArgument, kDevice. Units: bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::shim {

struct RegionInfo {
  std::uint64_t id = 0;          // the number of the region, counted from 1 and never reused
  std::uint64_t generation = 0;  // the value of the change counter when the region was made; the counter
                                 // begins at 1
  std::uint64_t pointer = 0;     // the address of the region's first mapping; 0 if the program made the
                                 // region itself and it is not mapped now
  std::uint64_t bytes = 0;
  int device = 0;
};

struct RegionListener {
  std::function<void(const RegionInfo&)> added;
  // Reports that a region is no longer listed. Its memory is released as soon as this returns.
  std::function<void(const RegionInfo&)> freed;
  // Waits for memory when the device has none left: blocks while a mover holds freed memory. Returns true if
  // a mover has released some, so that another attempt may help.
  std::function<bool()> wait_for_frees;
};

struct MemoryState;

class ShimMemory {
 public:
  ShimMemory();
  ~ShimMemory();
  ShimMemory(const ShimMemory&) = delete;
  ShimMemory& operator=(const ShimMemory&) = delete;

  // Returns all regions that exist now, ordered by id. Regions whose memory is released are included.
  [[nodiscard]] std::vector<RegionInfo> regions() const;
  // Sets the listener. There is at most one; an empty listener removes it.
  void on_change(RegionListener listener);

  // Releases memory that the program has freed and that the shim retains only for later allocations. Such
  // memory need not move. Call this function before an export begins.
  void trim();

  Result<UniqueFd> export_region(std::uint64_t id) const;

  // Unmaps and releases every region's physical memory. After an error, some regions are released and others
  // are not. map_region and make_region restore the released regions and do not change the other regions.
  Result<void> release_all();
  // Imports the memory and maps it at the old addresses with the old access (mode 1). A region that is not
  // released stays unchanged. The descriptor may be closed afterwards. Only the driver checks that the
  // descriptor's size matches the region.
  Result<void> map_region(std::uint64_t id, int fd);
  // Makes new memory (content undefined) at the old addresses, and exports it for the mover to fill (mode 2).
  // Returns kInvalidArgument if the region is not released.
  Result<UniqueFd> make_region(std::uint64_t id);
  // Returns whether no region is released, so that the program can run.
  [[nodiscard]] bool whole() const;

  // Returns the state that the hooks use. It is private to this folder.
  [[nodiscard]] MemoryState& state() noexcept { return *state_; }

 private:
  std::unique_ptr<MemoryState> state_;
};

ShimMemory& shim_memory() noexcept;

}  // namespace ckpt::shim
