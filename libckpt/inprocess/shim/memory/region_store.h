// SPDX-License-Identifier: Apache-2.0
// The table of physical allocations: where each is mapped, with which access, and the handles that the
// program knows it by. A program never sees the driver's own handle of memory that moves, since that
// changes with every move. No driver calls.
// Threads: none inside; the owner locks. Ownership: plain values; the driver's handles in them are let go by
// the caller that takes the region out.
// Errors: lookups give nullptr. Units: bytes.
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
  std::uint64_t offset = 0;             // within the allocation
  std::vector<CUmemAccessDesc> access;  // the last word for each location

  void set_access(const CUmemAccessDesc& desc);
};

// Where a region comes from decides who frees it.
enum class RegionUse : std::uint8_t {
  kProgram,  // the program's cuMemCreate: goes with its last handle and mapping
  kLarge,    // one allocation of cuMemAlloc and the like
  kSlab,     // shared by small ones
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
  CUmemGenericAllocationHandle handle = 0;  // the driver's; 0 while the memory is released
  CUmemAllocationProp made{};               // as the driver was asked
  CUmemAllocationProp asked{};              // as the program asked
  unsigned long long flags = 0;
  // The descriptor of memory that came from a mover: drivers do not export imported memory, so that the next
  // mover gets this one. Closed with release.
  std::shared_ptr<const UniqueFd> descriptor;
  bool exportable = false;
  unsigned references = 0;  // handles that the program holds
  std::map<std::uint64_t, Mapping> mappings;
};

class RegionStore {
 public:
  // Fills in id and generation.
  Region& add(Region region);
  [[nodiscard]] Region* find(std::uint64_t id);
  [[nodiscard]] const Region* find(std::uint64_t id) const;
  // Takes it out, with its mappings.
  std::optional<Region> remove(std::uint64_t id);
  [[nodiscard]] const std::map<std::uint64_t, Region>& by_id() const { return regions_; }
  [[nodiscard]] std::map<std::uint64_t, Region>& by_id() { return regions_; }

  // The bytes of the regions that hold the owner's blocks.
  [[nodiscard]] std::uint64_t block_bytes(const void* owner) const;

  // The region that is mapped at this address, or nullptr.
  [[nodiscard]] Region* at(std::uint64_t address);
  [[nodiscard]] const Region* at(std::uint64_t address) const;
  void map(Region& region, std::uint64_t address, std::uint64_t bytes, std::uint64_t offset);
  // Forgets the mappings that begin in this range; gives the ids of the program's regions that nothing holds
  // any more.
  std::vector<std::uint64_t> unmap(std::uint64_t address, std::uint64_t bytes);
  // True if a mapping of memory that is not the program's own reaches into this range.
  [[nodiscard]] bool touches_blocks(std::uint64_t address, std::uint64_t bytes) const;
  // Notes the access of each mapping that begins in this range.
  void set_access(std::uint64_t address, std::uint64_t bytes, const CUmemAccessDesc& desc);

  // The handle that the program holds in place of the driver's.
  [[nodiscard]] static CUmemGenericAllocationHandle handle_of(const Region& region) {
    return kHandleMark | region.id;
  }
  // The region of a handle that the program holds at least once, or nullptr: not one of handle_of's, or
  // released.
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
  std::map<std::uint64_t, std::uint64_t> by_address_;  // of each mapping: the region's id
  std::map<const void*, std::uint64_t> block_bytes_;   // by the owner's key
  std::uint64_t next_id_ = 1;
  std::uint64_t generation_ = 0;
};

}  // namespace ckpt::shim
