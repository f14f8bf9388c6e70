// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/shim/memory/blocks.h"

#include <mutex>
#include <utility>

#include "libckpt/inprocess/shim/core/gate.h"
#include "libckpt/inprocess/shim/memory/capture.h"
#include "libckpt/inprocess/shim/memory/pools.h"

namespace ckpt::shim {
namespace {

Heap& heap_of(MemoryState& state, const Owner& owner) {
  auto found = state.heaps.find(owner.key());
  if (found == state.heaps.end()) {
    const std::uint64_t granule = state.facts.at(owner.device).granule;
    found = state.heaps.emplace(owner.key(), Heap{owner, SlabHeap(granule), std::nullopt, nullptr}).first;
  }
  return found->second;
}

// Retains an empty slab as the heap's spare. Returns false if the heap already has a spare; the slab's region
// must then be dropped.
bool keep_spare(Heap& heap, std::uint64_t slab) {
  if (!heap.spare) {
    heap.spare = slab;
    return true;
  }
  heap.slabs.remove_slab(slab);
  return false;
}

bool take_small(MemoryState& state, const Owner& owner, std::uint64_t bytes, CUdeviceptr* out) {
  Heap& heap = heap_of(state, owner);
  const std::optional<std::uint64_t> address = heap.slabs.allocate(bytes);
  if (!address) return false;
  const std::uint64_t slab = heap.slabs.slab_of(*address);
  if (heap.spare == slab) heap.spare.reset();
  add_block(state, *address, bytes, state.regions.at(slab)->id, owner);
  *out = *address;
  return true;
}

CUresult allocate_small(MemoryState& state, const Owner& owner, std::uint64_t bytes, CUdeviceptr* out) {
  const std::uint64_t rounded = SlabHeap::rounded(bytes);
  const std::uint64_t granule = state.facts_for(owner.device).granule;
  {
    const std::unique_lock lock(state.mutex);
    if (take_small(state, owner, rounded, out)) return CUDA_SUCCESS;
  }
  Region slab;
  const CUresult result = make_block_region(state, owner, RegionUse::kSlab, granule, &slab);
  if (result != CUDA_SUCCESS) return result;
  const std::uint64_t address = slab.mappings.begin()->first;
  {
    const std::unique_lock lock(state.mutex);
    Heap& heap = heap_of(state, owner);
    heap.slabs.add_slab(address);
    take_small(state, owner, rounded, out);
    // Another thread may meanwhile have freed a piece that fits better.
    if (heap.slabs.slab_of(*out) == address || keep_spare(heap, address)) return CUDA_SUCCESS;
    slab = *state.regions.remove(slab.id);
  }
  drop_region(state, slab);
  return CUDA_SUCCESS;
}

CUresult allocate_large(MemoryState& state, const Owner& owner, std::uint64_t bytes, CUdeviceptr* out) {
  Region region;
  const CUresult result = make_block_region(state, owner, RegionUse::kLarge, bytes, &region);
  if (result != CUDA_SUCCESS) return result;
  const std::uint64_t address = region.mappings.begin()->first;
  const std::unique_lock lock(state.mutex);
  add_block(state, address, bytes, region.id, owner);
  *out = address;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult current_owner(const RealDriver& driver, Owner* owner) {
  CUresult result = driver.cuCtxGetCurrent(&owner->context);
  if (result != CUDA_SUCCESS) return result;
  if (owner->context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return driver.cuCtxGetDevice(&owner->device);
}

void add_block(MemoryState& state, std::uint64_t address, std::uint64_t bytes, std::uint64_t region,
               const Owner& owner) {
  state.blocks[address] = Block{bytes, region, ++state.blocks_made, owner, nullptr};
}

CUresult ask_context(MemoryState& state, const Owner& owner) {
  CUevent pulse = nullptr;
  {
    const std::unique_lock lock(state.mutex);
    pulse = heap_of(state, owner).pulse;
  }
  if (pulse != nullptr) return state.driver.cuEventQuery(pulse);
  const CUresult result = state.driver.cuEventCreate(&pulse, CU_EVENT_DISABLE_TIMING);
  if (result != CUDA_SUCCESS) return result;
  const std::unique_lock lock(state.mutex);
  Heap& heap = heap_of(state, owner);
  if (heap.pulse != nullptr) return state.driver.cuEventDestroy_v2(pulse);
  heap.pulse = pulse;
  return CUDA_SUCCESS;
}

CUresult allocate_block(MemoryState& state, const Owner& owner, std::uint64_t bytes, CUdeviceptr* out) {
  return bytes < kLargeBytes ? allocate_small(state, owner, bytes, out)
                             : allocate_large(state, owner, bytes, out);
}

void remove_block(MemoryState& state, std::uint64_t address, std::vector<Region>& gone) {
  const Block block = state.blocks.at(address);
  state.blocks.erase(address);
  if (block.owner.pool != nullptr) block.owner.pool->used -= block.bytes;
  give_back(state, address, block, gone);
}

void give_back(MemoryState& state, std::uint64_t address, const Block& block, std::vector<Region>& gone) {
  const Region* region = state.regions.find(block.region);
  Pool* const pool = block.owner.pool;
  if (region->use == RegionUse::kSlab) {
    Heap& heap = heap_of(state, block.owner);
    const std::optional<std::uint64_t> empty = heap.slabs.give(address, block.bytes);
    if (!empty || keep_spare(heap, *empty)) return;
  }
  if (region->use == RegionUse::kLarge && pool != nullptr) {
    pool->cached.emplace(region->bytes, region->id);
    return;
  }
  gone.push_back(*state.regions.remove(block.region));
}

CUresult wait_for_work(MemoryState& state, const Owner& owner) {
  const GateWait wait;
  CUcontext current = nullptr;
  const bool push = owner.context != nullptr &&
                    (state.driver.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != owner.context);
  if (push) {
    const CUresult result = state.driver.cuCtxPushCurrent_v2(owner.context);
    if (result != CUDA_SUCCESS) return result;
  }
  CUresult result = CUDA_SUCCESS;
  {
    const NoCapture none;
    result = none ? state.driver.cuCtxSynchronize() : ask_beside_capture(state.driver);
  }
  if (push) state.driver.cuCtxPopCurrent_v2(&current);
  return result;
}

std::optional<CUresult> free_block(MemoryState& state, CUdeviceptr address) {
  Owner owner;
  {
    const std::shared_lock lock(state.mutex);
    const auto found = state.blocks.find(address);
    if (found == state.blocks.end()) {
      if (state.regions.at(address) == nullptr) return std::nullopt;
      return CUDA_ERROR_INVALID_VALUE;
    }
    owner = found->second.owner;
  }
  const CUresult result = wait_for_work(state, owner);
  if (result != CUDA_SUCCESS) return result;
  std::vector<Region> gone;
  {
    const std::unique_lock lock(state.mutex);
    if (!state.blocks.contains(address)) return CUDA_ERROR_INVALID_VALUE;
    remove_block(state, address, gone);
    if (owner.pool != nullptr) trim_pool(state, *owner.pool, owner.pool->threshold, gone);
  }
  drop_regions(state, gone);
  return CUDA_SUCCESS;
}

void free_context(MemoryState& state, CUcontext context) {
  std::vector<Region> gone;
  {
    const std::unique_lock lock(state.mutex);
    std::erase_if(state.blocks, [context](const auto& item) { return item.second.owner.key() == context; });
    std::vector<std::uint64_t> ids;
    for (auto& [id, region] : state.regions.by_id()) {
      if (region.owner.key() != context) continue;
      if (region.use != RegionUse::kProgram) {
        ids.push_back(id);
      } else {
        region.owner.context = nullptr;
      }
    }
    for (const std::uint64_t id : ids) gone.push_back(*state.regions.remove(id));
    state.heaps.erase(context);
    state.peers.forget(context);
    end_waits(state, context);
  }
  drop_regions(state, gone);
}

void note_primary_context(MemoryState& state, int device, CUcontext context) {
  const std::unique_lock lock(state.mutex);
  state.primaries[device] = context;
}

CUcontext primary_context(MemoryState& state, int device) {
  const std::unique_lock lock(state.mutex);
  const auto found = state.primaries.find(device);
  return found == state.primaries.end() ? nullptr : found->second;
}

void free_primary_context(MemoryState& state, int device) {
  CUcontext context = nullptr;
  {
    const std::unique_lock lock(state.mutex);
    std::swap(context, state.primaries[device]);
  }
  if (context != nullptr) free_context(state, context);
  free_pools(state, device);
}

}  // namespace ckpt::shim
