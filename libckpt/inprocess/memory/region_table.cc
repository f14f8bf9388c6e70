// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/memory/region_table.h"

namespace ckpt {

Result<Region> RegionTable::add(std::uint64_t pointer, std::uint64_t bytes) {
  std::uint64_t end = 0;
  if (bytes == 0 || __builtin_add_overflow(pointer, bytes, &end)) {
    return Error(ErrorCode::kInvalidArgument,
                 "A region must have at least one byte and must not wrap around");
  }
  const auto next = by_pointer_.lower_bound(pointer);
  const bool hits_next = next != by_pointer_.end() && next->first < end;
  const bool hits_former =
      next != by_pointer_.begin() && std::prev(next)->first + std::prev(next)->second.bytes > pointer;
  if (hits_next || hits_former) return Error(ErrorCode::kInvalidArgument, "A region overlaps a known region");
  const Region region{next_id_++, ++generation_, pointer, bytes};
  by_pointer_.emplace(pointer, region);
  pointer_of_id_.emplace(region.id, pointer);
  return region;
}

bool RegionTable::remove(std::uint64_t id) {
  const auto found = pointer_of_id_.find(id);
  if (found == pointer_of_id_.end()) return false;
  ++generation_;
  by_pointer_.erase(found->second);
  pointer_of_id_.erase(found);
  return true;
}

const Region* RegionTable::containing(std::uint64_t pointer, std::uint64_t bytes) const {
  auto after = by_pointer_.upper_bound(pointer);
  if (after == by_pointer_.begin()) return nullptr;
  const Region& region = std::prev(after)->second;
  const std::uint64_t offset = pointer - region.pointer;
  if (offset >= region.bytes || bytes > region.bytes - offset) return nullptr;
  return &region;
}

const Region* RegionTable::find(std::uint64_t id) const {
  const auto found = pointer_of_id_.find(id);
  return found == pointer_of_id_.end() ? nullptr : &by_pointer_.at(found->second);
}

}  // namespace ckpt
