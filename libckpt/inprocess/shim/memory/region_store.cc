// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/shim/memory/region_store.h"

#include <algorithm>
#include <utility>

namespace ckpt::shim {

void Mapping::set_access(const CUmemAccessDesc& desc) {
  const auto same = [&desc](const CUmemAccessDesc& known) {
    return known.location.type == desc.location.type && known.location.id == desc.location.id;
  };
  const auto found = std::find_if(access.begin(), access.end(), same);
  if (found != access.end()) {
    found->flags = desc.flags;
  } else {
    access.push_back(desc);
  }
}

Region& RegionStore::add(Region region) {
  region.id = next_id_++;
  region.generation = ++generation_;
  for (const auto& [address, mapping] : region.mappings) by_address_[address] = region.id;
  if (region.use != RegionUse::kProgram) block_bytes_[region.owner.key()] += region.bytes;
  const std::uint64_t id = region.id;
  return regions_.emplace(id, std::move(region)).first->second;
}

Region* RegionStore::find(std::uint64_t id) {
  const auto found = regions_.find(id);
  return found == regions_.end() ? nullptr : &found->second;
}

const Region* RegionStore::find(std::uint64_t id) const {
  const auto found = regions_.find(id);
  return found == regions_.end() ? nullptr : &found->second;
}

std::optional<Region> RegionStore::remove(std::uint64_t id) {
  auto node = regions_.extract(id);
  if (node.empty()) return std::nullopt;
  ++generation_;
  const Region& region = node.mapped();
  for (const auto& [address, mapping] : region.mappings) by_address_.erase(address);
  if (region.use != RegionUse::kProgram) {
    const auto sum = block_bytes_.find(region.owner.key());
    sum->second -= region.bytes;
    if (sum->second == 0) block_bytes_.erase(sum);
  }
  return std::move(node.mapped());
}

std::uint64_t RegionStore::block_bytes(const void* owner) const {
  const auto found = block_bytes_.find(owner);
  return found == block_bytes_.end() ? 0 : found->second;
}

const Region* RegionStore::at(std::uint64_t address) const {
  const auto after = by_address_.upper_bound(address);
  if (after == by_address_.begin()) return nullptr;
  const auto& [start, id] = *std::prev(after);
  const Region& region = regions_.at(id);
  return address - start < region.mappings.at(start).bytes ? &region : nullptr;
}

Region* RegionStore::at(std::uint64_t address) {
  return const_cast<Region*>(std::as_const(*this).at(address));
}

void RegionStore::map(Region& region, std::uint64_t address, std::uint64_t bytes, std::uint64_t offset) {
  region.mappings[address] = Mapping{address, bytes, offset, {}};
  by_address_[address] = region.id;
}

std::vector<std::uint64_t> RegionStore::unmap(std::uint64_t address, std::uint64_t bytes) {
  std::vector<std::uint64_t> unheld;
  auto found = by_address_.lower_bound(address);
  while (found != by_address_.end() && found->first - address < bytes) {
    Region& region = regions_.at(found->second);
    region.mappings.erase(found->first);
    if (unused(region)) unheld.push_back(region.id);
    found = by_address_.erase(found);
  }
  return unheld;
}

bool RegionStore::touches_blocks(std::uint64_t address, std::uint64_t bytes) const {
  const Region* first = at(address);
  if (first != nullptr && first->use != RegionUse::kProgram) return true;
  for (auto next = by_address_.lower_bound(address);
       next != by_address_.end() && next->first - address < bytes; ++next) {
    if (regions_.at(next->second).use != RegionUse::kProgram) return true;
  }
  return false;
}

void RegionStore::set_access(std::uint64_t address, std::uint64_t bytes, const CUmemAccessDesc& desc) {
  for (auto next = by_address_.lower_bound(address);
       next != by_address_.end() && next->first - address < bytes; ++next) {
    regions_.at(next->second).mappings.at(next->first).set_access(desc);
  }
}

Region* RegionStore::by_handle(CUmemGenericAllocationHandle handle) {
  if (!is_handle(handle)) return nullptr;
  Region* region = find(handle & ~kMarkMask);
  return region != nullptr && region->references > 0 ? region : nullptr;
}

}  // namespace ckpt::shim
