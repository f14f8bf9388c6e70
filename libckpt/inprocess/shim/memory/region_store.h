// SPDX-License-Identifier: Apache-2.0
// The table of physical allocations: the mappings of each, their access, and the handles that the program has
// for it. A program never gets the driver's own handle of memory that moves, because that handle changes with
// every move. No driver calls.
// Threads: no lock inside; the owner locks. Ownership: plain values. The caller that removes a region
// releases its driver handles. Errors: lookups return nullptr. Units: bytes.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "libckpt/base/fd.h"

namespace ckpt::shim {

struct Mapping {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;             // the offset within the allocation
  std::vector<CUmemAccessDesc> access;  // the access that was set last, for each location

  void set_access(const CUmemAccessDesc& desc);
};

// The origin of a region, which determines when the region is freed.
enum class RegionUse : std::uint8_t {
  kProgram,  // a region that the program's cuMemCreate made; it is removed with its last handle and mapping
  kLarge,    // a region with one allocation of cuMemAlloc or a related function
  kSlab,     // a region that small allocations share
};

struct Pool;

// The owner of memory: a context (cuMemAlloc), a pool, or a program that maps memory itself, in a context if
// it has one.
struct Owner {
  int device = 0;
  CUcontext context = nullptr;
  Pool* pool = nullptr;

  [[nodiscard]] const void* key() const {
    return pool != nullptr ? static_cast<const void*>(pool) : static_cast<const void*>(context);
  }
};

struct Region {
  std::uint64_t id = 0;
  std::uint64_t generation = 0;
  std::uint64_t bytes = 0;
  Owner owner;
  RegionUse use = RegionUse::kProgram;
  CUmemGenericAllocationHandle handle = 0;  // the driver's handle; 0 while the memory is released
  CUmemAllocationProp made{};               // the properties that the driver was given
  CUmemAllocationProp asked{};              // the properties that the program requested
  unsigned long long flags = 0;
  // The descriptor of memory that came from a mover. Drivers do not export imported memory, so the next mover
  // gets this descriptor. It is closed when the memory is released.
  std::shared_ptr<const UniqueFd> descriptor;
  bool exportable = false;
  unsigned references = 0;  // the number of handles that the program has
  std::map<std::uint64_t, Mapping> mappings;
};

class RegionStore {
 public:
  // Adds a region and sets its id and generation.
  Region& add(Region region);
  [[nodiscard]] Region* find(std::uint64_t id);
  [[nodiscard]] const Region* find(std::uint64_t id) const;
  // Removes a region with its mappings, and returns it.
  std::optional<Region> remove(std::uint64_t id);
  [[nodiscard]] const std::map<std::uint64_t, Region>& by_id() const { return regions_; }
  [[nodiscard]] std::map<std::uint64_t, Region>& by_id() { return regions_; }

  // Returns the bytes of the regions that contain the owner's blocks.
  [[nodiscard]] std::uint64_t block_bytes(const void* owner) const;

  // Returns the region that is mapped at this address, or nullptr.
  [[nodiscard]] Region* at(std::uint64_t address);
  [[nodiscard]] const Region* at(std::uint64_t address) const;
  void map(Region& region, std::uint64_t address, std::uint64_t bytes, std::uint64_t offset);
  // Removes the mappings that begin in this range. Returns the ids of the program's regions that have no
  // references any more.
  std::vector<std::uint64_t> unmap(std::uint64_t address, std::uint64_t bytes);
  // Returns true if a mapping of memory that is not the program's own overlaps this range.
  [[nodiscard]] bool touches_blocks(std::uint64_t address, std::uint64_t bytes) const;
  // Stores the access of each mapping that begins in this range.
  void set_access(std::uint64_t address, std::uint64_t bytes, const CUmemAccessDesc& desc);

  // Returns the handle that the program has in place of the driver's handle.
  [[nodiscard]] static CUmemGenericAllocationHandle handle_of(const Region& region) {
    return kHandleMark | region.id;
  }
  // Returns the region of a handle that the program holds at least once. Returns nullptr if the handle is not
  // from handle_of, or was released.
  [[nodiscard]] Region* by_handle(CUmemGenericAllocationHandle handle);
  [[nodiscard]] static bool is_handle(CUmemGenericAllocationHandle handle) {
    return (handle & kMarkMask) == kHandleMark;
  }
  [[nodiscard]] static bool unused(const Region& region) {
    return region.use == RegionUse::kProgram && region.references == 0 && region.mappings.empty();
  }

 private:
  static constexpr std::uint64_t kHandleMark = 0x6d69'6772'0000'0000;
  static constexpr std::uint64_t kMarkMask = 0xffff'ffff'0000'0000;

  std::map<std::uint64_t, Region> regions_;
  std::map<std::uint64_t, std::uint64_t> by_address_;  // the region's id for each mapping
  std::map<const void*, std::uint64_t> block_bytes_;   // the bytes of every owner's regions that contain
                                                       // blocks, by the owner's key
  std::uint64_t next_id_ = 1;
  std::uint64_t generation_ = 0;
};

}  // namespace ckpt::shim
