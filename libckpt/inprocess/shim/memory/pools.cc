// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/shim/memory/pools.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "libckpt/inprocess/shim/core/gate.h"
#include "libckpt/inprocess/shim/memory/blocks.h"
#include "libckpt/inprocess/shim/memory/capture.h"
#include "libckpt/inprocess/shim/memory/memory.h"

namespace ckpt::shim {
namespace {

// Whether memory was freed on a stream since the last synchronization that found no more work.
std::atomic<bool> something_freed{false};

bool has_ended(const RealDriver& driver, FreedBlock& freed) {
  if (freed.event == nullptr) return true;
  if (captures_open()) return false;  // a query could break the capture
  if (driver.cuEventQuery(freed.event) == CUDA_ERROR_NOT_READY) return false;
  driver.cuEventDestroy_v2(freed.event);
  freed.event = nullptr;
  return true;
}

void note_use(MemoryState& state, Pool& pool, std::uint64_t bytes) {
  pool.used += bytes;
  pool.used_high = std::max(pool.used_high, pool.used);
  pool.reserved_high = std::max(pool.reserved_high, state.regions.block_bytes(&pool));
}

// Returns whether a region of `has` bytes may be reused for `wants` bytes. The region may be larger by at
// most a quarter, or by at most 2 MiB if that is more.
bool fits(std::uint64_t has, std::uint64_t wants) {
  return has >= wants && has - wants <= std::max<std::uint64_t>(wants / 4, std::uint64_t{2} << 20);
}

// Returns the size of the range that a freed block had: its region's range, or its piece's.
std::uint64_t range_bytes(const MemoryState& state, const FreedBlock& freed) {
  const Region* region = state.regions.find(freed.block.region);
  return region->use == RegionUse::kLarge ? region->bytes : freed.block.bytes;
}

// Returns whether a freed block has the kind and size for `bytes`: exactly for a piece of a slab,
// approximately for a region.
bool suits(const MemoryState& state, const FreedBlock& freed, std::uint64_t bytes) {
  const Region* region = state.regions.find(freed.block.region);
  if ((region->use == RegionUse::kLarge) != (bytes >= kLargeBytes)) return false;
  if (region->use == RegionUse::kSlab) return freed.block.bytes == SlabHeap::rounded(bytes);
  return fits(range_bytes(state, freed), bytes);
}

void use_again(MemoryState& state, Pool& pool, std::size_t index, std::uint64_t bytes, CUdeviceptr* out) {
  const FreedBlock freed = pool.freed[index];
  pool.freed.erase(pool.freed.begin() + static_cast<std::ptrdiff_t>(index));
  if (freed.event != nullptr) state.driver.cuEventDestroy_v2(freed.event);
  const std::uint64_t size = bytes >= kLargeBytes ? bytes : SlabHeap::rounded(bytes);
  add_block(state, freed.address, size, freed.block.region, pool.owner);
  *out = freed.address;
}

bool reuse_freed(MemoryState& state, Pool& pool, std::uint64_t bytes, const StreamPlace& place,
                 CUdeviceptr* out) {
  if (place.number == 0) return false;
  for (std::size_t i = 0; i < pool.freed.size(); ++i) {
    if (pool.freed[i].stream != place.number || !suits(state, pool.freed[i], bytes)) continue;
    use_again(state, pool, i, bytes, out);
    return true;
  }
  return false;
}

// Takes memory that another stream has freed, and makes this stream wait for that free. The callers try this
// only when no other memory is left.
bool take_freed_elsewhere(MemoryState& state, Pool& pool, std::uint64_t bytes, const StreamPlace& place,
                          CUdeviceptr* out) {
  for (std::size_t i = 0; i < pool.freed.size(); ++i) {
    const FreedBlock& freed = pool.freed[i];
    if (!suits(state, freed, bytes)) continue;
    if (freed.event != nullptr &&
        state.driver.cuStreamWaitEvent(place.stream, freed.event, 0) != CUDA_SUCCESS) {
      continue;
    }
    use_again(state, pool, i, bytes, out);
    return true;
  }
  return false;
}

bool take_kept(MemoryState& state, Pool& pool, std::uint64_t bytes, CUdeviceptr* out) {
  if (bytes < kLargeBytes) return false;
  const auto found = pool.cached.lower_bound(bytes);
  if (found == pool.cached.end() || !fits(found->first, bytes)) return false;
  const Region* region = state.regions.find(found->second);
  pool.cached.erase(found);
  *out = region->mappings.begin()->first;
  add_block(state, *out, bytes, region->id, pool.owner);
  return true;
}

void erase_pool(MemoryState& state, Pool& pool) {
  state.heaps.erase(&pool);
  state.peers.forget(&pool);
}

// Removes ended pools whose last memory was freed. Call it with the mutex held.
void sweep_ended(MemoryState& state, std::vector<Region>& gone) {
  std::erase_if(state.ended_pools, [&state, &gone](const std::unique_ptr<Pool>& pool) {
    reclaim_freed(state, *pool, gone);
    trim_pool(state, *pool, 0, gone);
    if (state.regions.block_bytes(pool.get()) != 0) return false;
    erase_pool(state, *pool);
    return true;
  });
}

bool fits_in_pool(const MemoryState& state, const Pool& pool, std::uint64_t bytes) {
  if (pool.limit == 0) return true;
  const std::uint64_t has = state.regions.block_bytes(&pool);
  return has <= pool.limit && bytes <= pool.limit - has;
}

CUresult record_after(const RealDriver& driver, const StreamPlace& place, CUevent* out) {
  CUcontext current = nullptr;
  const bool push = driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current != place.context;
  CUresult result = push ? driver.cuCtxPushCurrent_v2(place.context) : CUDA_SUCCESS;
  if (result != CUDA_SUCCESS) return result;
  result = driver.cuEventCreate(out, CU_EVENT_DISABLE_TIMING);
  if (result == CUDA_SUCCESS) {
    result = driver.cuEventRecord(*out, place.stream);
    if (result != CUDA_SUCCESS) driver.cuEventDestroy_v2(*out);
  }
  if (push) driver.cuCtxPopCurrent_v2(&current);
  return result;
}

}  // namespace

void reclaim_freed(MemoryState& state, Pool& pool, std::vector<Region>& gone) {
  std::erase_if(pool.freed, [&state, &gone](FreedBlock& freed) {
    if (!has_ended(state.driver, freed)) return false;
    give_back(state, freed.address, freed.block, gone);
    return true;
  });
}

void trim_pool(MemoryState& state, Pool& pool, std::uint64_t limit, std::vector<Region>& gone) {
  while (!pool.cached.empty() && state.regions.block_bytes(&pool) > limit) {
    const auto largest = std::prev(pool.cached.end());
    gone.push_back(*state.regions.remove(largest->second));
    pool.cached.erase(largest);
  }
  const auto heap = state.heaps.find(&pool);
  if (heap == state.heaps.end() || !heap->second.spare || state.regions.block_bytes(&pool) <= limit) return;
  const std::uint64_t slab = *heap->second.spare;
  heap->second.spare.reset();
  heap->second.slabs.remove_slab(slab);
  gone.push_back(*state.regions.remove(state.regions.at(slab)->id));
}

void end_waits(MemoryState& state, CUcontext context) {
  const auto end = [context](Pool& pool) {
    for (FreedBlock& freed : pool.freed) {
      if (freed.context != context) continue;
      freed.event = nullptr;
      freed.stream = 0;
    }
  };
  for (auto& [handle, pool] : state.pools) end(*pool);
  for (auto& pool : state.ended_pools) end(*pool);
}

Pool& add_pool(MemoryState& state, CUmemoryPool handle, int device, std::uint64_t limit) {
  auto pool = std::make_unique<Pool>();
  pool->handle = handle;
  pool->owner = {device, nullptr, pool.get()};
  pool->limit = limit;
  return *(state.pools[handle] = std::move(pool));
}

void end_pool(MemoryState& state, CUmemoryPool handle) {
  std::vector<Region> gone;
  {
    const std::unique_lock lock(state.mutex);
    auto node = state.pools.extract(handle);
    if (node.empty()) return;
    node.mapped()->threshold = 0;
    state.ended_pools.push_back(std::move(node.mapped()));
    something_freed.store(true, std::memory_order_relaxed);
    sweep_ended(state, gone);
  }
  drop_regions(state, gone);
}

void free_pools(MemoryState& state, int device) {
  std::vector<Region> gone;
  {
    const std::unique_lock lock(state.mutex);
    const auto of_pool = [device](const Owner& owner) {
      return owner.pool != nullptr && owner.device == device;
    };
    std::erase_if(state.blocks, [&of_pool](const auto& item) { return of_pool(item.second.owner); });
    std::vector<std::uint64_t> ids;
    for (const auto& [id, region] : state.regions.by_id()) {
      if (region.use != RegionUse::kProgram && of_pool(region.owner)) ids.push_back(id);
    }
    for (const std::uint64_t id : ids) gone.push_back(*state.regions.remove(id));
    std::erase_if(state.pools, [&](auto& item) {
      if (item.second->owner.device != device) return false;
      erase_pool(state, *item.second);
      return true;
    });
    std::erase_if(state.ended_pools, [&](auto& pool) {
      if (pool->owner.device != device) return false;
      erase_pool(state, *pool);
      return true;
    });
  }
  drop_regions(state, gone);
}

CUresult place_of(const RealDriver& driver, CUstream stream, bool per_thread, StreamPlace* out) {
  Owner current;
  CUresult result = current_owner(driver, &current);
  if (result != CUDA_SUCCESS) return result;
  out->stream = stream == nullptr ? (per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY) : stream;
  out->context = current.context;
  out->device = current.device;
  if (out->stream == CU_STREAM_PER_THREAD) return CUDA_SUCCESS;
  if (out->stream != CU_STREAM_LEGACY) {
    result =
        driver.cuStreamGetCtx != nullptr ? driver.cuStreamGetCtx(out->stream, &out->context) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS) return result;
    if (out->context != current.context) {
      result = driver.cuCtxPushCurrent_v2(out->context);
      if (result != CUDA_SUCCESS) return result;
      result = driver.cuCtxGetDevice(&out->device);
      driver.cuCtxPopCurrent_v2(&current.context);
      if (result != CUDA_SUCCESS) return result;
    }
  }
  unsigned long long number = 0;
  if (driver.cuStreamGetId != nullptr && driver.cuStreamGetId(out->stream, &number) == CUDA_SUCCESS) {
    out->number = number + 1;
  }
  return CUDA_SUCCESS;
}

CUresult allocate_on_stream(MemoryState& state, Pool& pool, std::uint64_t bytes, const StreamPlace& place,
                            CUdeviceptr* out) {
  std::vector<Region> gone;
  bool found = false;
  bool within = true;
  {
    const std::unique_lock lock(state.mutex);
    found = reuse_freed(state, pool, bytes, place, out);
    if (!found) {
      reclaim_freed(state, pool, gone);
      found = take_kept(state, pool, bytes, out);
      within = bytes < kLargeBytes || fits_in_pool(state, pool, bytes);
      if (!found && !within) found = take_freed_elsewhere(state, pool, bytes, place, out);
    }
    if (found) note_use(state, pool, state.blocks.at(*out).bytes);
  }
  drop_regions(state, gone);
  if (found) return CUDA_SUCCESS;
  CUresult result = within ? allocate_block(state, pool.owner, bytes, out) : CUDA_ERROR_OUT_OF_MEMORY;
  const std::unique_lock lock(state.mutex);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && take_freed_elsewhere(state, pool, bytes, place, out)) {
    result = CUDA_SUCCESS;
  }
  if (result == CUDA_SUCCESS) note_use(state, pool, state.blocks.at(*out).bytes);
  return result;
}

std::optional<CUresult> free_on_stream(MemoryState& state, CUdeviceptr address, const StreamPlace& place) {
  {
    const std::shared_lock lock(state.mutex);
    const auto found = state.blocks.find(address);
    if (found == state.blocks.end() || found->second.owner.pool == nullptr) return std::nullopt;
  }
  CUevent event = nullptr;
  const CUresult result = record_after(state.driver, place, &event);
  if (result != CUDA_SUCCESS) return result;
  const std::unique_lock lock(state.mutex);
  const auto found = state.blocks.find(address);
  if (found == state.blocks.end() || found->second.owner.pool == nullptr) {
    state.driver.cuEventDestroy_v2(event);
    return CUDA_ERROR_INVALID_VALUE;
  }
  Pool& pool = *found->second.owner.pool;
  pool.used -= found->second.bytes;
  pool.freed.push_back({address, found->second, place.number, place.context, event});
  state.blocks.erase(found);
  something_freed.store(true, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

void memory_synchronized() noexcept {
  if (!something_freed.load(std::memory_order_relaxed)) return;
  MemoryState& state = shim_memory().state();
  std::vector<Region> gone;
  {
    const std::unique_lock lock(state.mutex);
    bool waiting = false;
    for (auto& [handle, pool] : state.pools) {
      reclaim_freed(state, *pool, gone);
      trim_pool(state, *pool, pool->threshold, gone);
      waiting = waiting || !pool->freed.empty();
    }
    sweep_ended(state, gone);
    something_freed.store(waiting || !state.ended_pools.empty(), std::memory_order_relaxed);
  }
  drop_regions(state, gone);
}

}  // namespace ckpt::shim
