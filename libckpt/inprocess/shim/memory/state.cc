// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/shim/memory/state.h"

#include <set>
#include <utility>

#include "libckpt/inprocess/shim/core/gate.h"
#include "libckpt/inprocess/shim/memory/pools.h"

namespace ckpt::shim {
namespace {

// Reserves the addresses, maps the region, and grants access to the owner's own device.
CUresult map_block_region(MemoryState& state, std::uint64_t alignment, Region& region) {
  CUdeviceptr address = 0;
  CUresult result = state.driver.cuMemAddressReserve(&address, region.bytes, alignment, 0, 0);
  if (result != CUDA_SUCCESS) return result;
  Mapping mapping{address, region.bytes, 0, {access_of(region.owner.device)}};
  result = map_one(state.driver, mapping, region.handle);
  if (result != CUDA_SUCCESS) {
    state.driver.cuMemAddressFree(address, region.bytes);
    return result;
  }
  region.mappings.emplace(address, std::move(mapping));
  return CUDA_SUCCESS;
}

// Adds the region to the table with access for all peers. A peer that is added meanwhile causes another
// round.
CUresult enter_with_peers(MemoryState& state, Region& region) {
  Mapping& mapping = region.mappings.begin()->second;
  std::unique_lock lock(state.mutex);
  while (true) {
    const std::uint64_t version = state.peers.version();
    const std::set<int> devices = state.peers.devices_for(region.owner.key());
    if (!devices.empty()) {
      lock.unlock();
      for (const int device : devices) {
        const CUmemAccessDesc access = access_of(device);
        const CUresult result = state.driver.cuMemSetAccess(mapping.address, mapping.bytes, &access, 1);
        if (result != CUDA_SUCCESS) return result;
        mapping.set_access(access);
      }
      lock.lock();
    }
    if (version != state.peers.version()) continue;
    region = state.regions.add(region);
    return CUDA_SUCCESS;
  }
}

void release(MemoryState& state, const Region& region) {
  for (const auto& [address, mapping] : region.mappings) {
    if (region.handle != 0) state.driver.cuMemUnmap(address, mapping.bytes);
    if (region.use != RegionUse::kProgram) state.driver.cuMemAddressFree(address, mapping.bytes);
  }
  if (region.handle != 0) state.driver.cuMemRelease(region.handle);
  state.quota.give(region.owner.device, region.bytes);
}

}  // namespace

std::map<std::uint64_t, Block>::const_iterator MemoryState::block_at(std::uint64_t address) const {
  const auto after = blocks.upper_bound(address);
  if (after == blocks.begin()) return blocks.end();
  const auto found = std::prev(after);
  return address - found->first < found->second.bytes ? found : blocks.end();
}

DeviceFacts MemoryState::facts_for(int device) {
  {
    const std::shared_lock lock(mutex);
    const auto known = facts.find(device);
    if (known != facts.end()) return known->second;
  }
  const DeviceFacts found = facts_of(driver, device);
  const std::unique_lock lock(mutex);
  return facts[device] = found;
}

void MemoryState::listen(RegionListener listener) {
  auto shared = std::make_shared<const RegionListener>(std::move(listener));
  const std::lock_guard lock(listener_mutex_);
  listener_ = std::move(shared);
}

std::shared_ptr<const RegionListener> MemoryState::listener() const {
  const std::lock_guard lock(listener_mutex_);
  return listener_;
}

void MemoryState::report_added(const RegionInfo& info) const {
  const auto now = listener();
  if (now->added) now->added(info);
}

void MemoryState::report_freed(const RegionInfo& info) const {
  const auto now = listener();
  if (now->freed) now->freed(info);
}

RegionInfo info_of(const Region& region) {
  const std::uint64_t pointer = region.mappings.empty() ? 0 : region.mappings.begin()->first;
  return {region.id, region.generation, pointer, region.bytes, region.owner.device};
}

CUresult make_physical(MemoryState& state, Region& region) {
  while (!state.quota.reserve(region.owner.device, region.bytes)) {
    if (drop_spares(state)) continue;
    state.quota.explain(region.owner.device, region.bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  CUresult result = create_physical(state.driver, region);
  while (result == CUDA_ERROR_OUT_OF_MEMORY) {
    if (!drop_spares(state)) {
      const auto now = state.listener();
      const GateWait wait;
      if (!now->wait_for_frees || !now->wait_for_frees()) break;
    }
    result = create_physical(state.driver, region);
  }
  if (result != CUDA_SUCCESS) {
    region.handle = 0;
    state.quota.give(region.owner.device, region.bytes);
  }
  return result;
}

CUresult make_block_region(MemoryState& state, const Owner& owner, RegionUse use, std::uint64_t bytes,
                           Region* out) {
  const DeviceFacts facts = state.facts_for(owner.device);
  std::uint64_t padded = 0;
  if (__builtin_add_overflow(bytes, facts.granule - 1, &padded)) return CUDA_ERROR_OUT_OF_MEMORY;
  Region region;
  region.bytes = padded & ~(facts.granule - 1);
  region.owner = owner;
  region.use = use;
  region.made = block_property(facts, owner.device);
  region.asked = region.made;
  region.exportable = true;
  CUresult result = make_physical(state, region);
  if (result != CUDA_SUCCESS) return result;
  result = map_block_region(state, facts.granule, region);
  if (result == CUDA_SUCCESS) result = enter_with_peers(state, region);
  if (result != CUDA_SUCCESS) {
    release(state, region);
    return result;
  }
  state.report_added(info_of(region));
  *out = std::move(region);
  return CUDA_SUCCESS;
}

void drop_region(MemoryState& state, const Region& region) {
  state.report_freed(info_of(region));
  release(state, region);
}

void drop_regions(MemoryState& state, const std::vector<Region>& regions) {
  for (const Region& region : regions) drop_region(state, region);
}

bool drop_spares(MemoryState& state) {
  std::vector<Region> gone;
  {
    const std::unique_lock lock(state.mutex);
    for (auto& [owner, heap] : state.heaps) {
      if (!heap.spare) continue;
      const std::uint64_t address = *heap.spare;
      heap.spare.reset();
      heap.slabs.remove_slab(address);
      gone.push_back(*state.regions.remove(state.regions.at(address)->id));
    }
    for (auto& [handle, pool] : state.pools) {
      reclaim_freed(state, *pool, gone);
      trim_pool(state, *pool, 0, gone);
    }
  }
  drop_regions(state, gone);
  return !gone.empty();
}

std::uint64_t spare_bytes(const MemoryState& state, int device) {
  std::uint64_t bytes = 0;
  const std::shared_lock lock(state.mutex);
  for (const auto& [owner, heap] : state.heaps) {
    if (heap.owner.device == device && heap.spare) bytes += heap.slabs.slab_bytes();
  }
  return bytes;
}

}  // namespace ckpt::shim
