// SPDX-License-Identifier: Apache-2.0
// Memory pools. The driver makes, checks and names them, but the shim supplies their memory. The driver
// handles pools that cannot move (of host memory, or made to be shared) and allocations into a graph that is
// being captured.
#include <mutex>

#include "libckpt/inprocess/shim/core/hooks.h"
#include "libckpt/inprocess/shim/core/job_state.h"
#include "libckpt/inprocess/shim/memory/call_real.h"
#include "libckpt/inprocess/shim/memory/capture.h"
#include "libckpt/inprocess/shim/memory/memory.h"
#include "libckpt/inprocess/shim/memory/pools.h"

namespace ckpt::shim {
namespace {

bool is_device_pool(const CUmemPoolProps& properties) {
  return properties.allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
         properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
         properties.handleTypes == CU_MEM_HANDLE_TYPE_NONE;
}

// Returns the pool for a handle. A device's default pool is added when it is first used. Returns nullptr for
// a pool that the driver handles.
Pool* find_pool(MemoryState& state, CUmemoryPool handle, int device) {
  {
    const std::shared_lock lock(state.mutex);
    const auto found = state.pools.find(handle);
    if (found != state.pools.end()) return found->second.get();
  }
  CUmemoryPool standard = nullptr;
  if (call_real(real().cuDeviceGetDefaultMemPool, &standard, device) != CUDA_SUCCESS || standard != handle ||
      !state.facts_for(device).movable) {
    return nullptr;
  }
  const std::unique_lock lock(state.mutex);
  const auto found = state.pools.find(handle);
  return found != state.pools.end() ? found->second.get() : &add_pool(state, handle, device, 0);
}

// Returns whether the stream is captured. Returns true also if the driver cannot determine it: a legacy
// stream while another stream of its context is captured. This must be the first query about a stream,
// because other queries end its capture (cuStreamGetId does on driver 580).
bool is_captured(CUstream stream, bool per_thread) {
  if (!captures_open()) return false;
  if (stream == nullptr) stream = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return call_real(real().cuStreamIsCapturing, stream, &status) != CUDA_SUCCESS ||
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

// Returns the pool for an allocation. Returns nullptr if the driver must handle it, because it cannot move or
// because the call is invalid.
Pool* pool_for(MemoryState& state, CUmemoryPool handle, CUdeviceptr* pointer, size_t bytes, CUstream stream,
               bool per_thread, StreamPlace* place) {
  if (pointer == nullptr || bytes == 0 || is_captured(stream, per_thread) ||
      place_of(state.driver, stream, per_thread, place) != CUDA_SUCCESS) {
    return nullptr;
  }
  if (handle == nullptr && call_real(real().cuDeviceGetMemPool, &handle, place->device) != CUDA_SUCCESS) {
    return nullptr;
  }
  return find_pool(state, handle, place->device);
}

template <class Call>
CUresult allocate(CUdeviceptr* pointer, size_t bytes, CUmemoryPool handle, CUstream stream, bool per_thread,
                  const char* name, Call driver_call) {
  MemoryState& state = shim_memory().state();
  StreamPlace place;
  Pool* pool = pool_for(state, handle, pointer, bytes, stream, per_thread, &place);
  if (pool != nullptr) return allocate_on_stream(state, *pool, bytes, place, pointer);
  const CUresult result = driver_call();
  if (result == CUDA_SUCCESS) not_movable(name);
  return result;
}

template <class Call>
CUresult free_async(CUdeviceptr pointer, CUstream stream, bool per_thread, Call driver_call) {
  MemoryState& state = shim_memory().state();
  StreamPlace place;
  if (!is_captured(stream, per_thread) &&
      place_of(state.driver, stream, per_thread, &place) == CUDA_SUCCESS) {
    if (const std::optional<CUresult> result = free_on_stream(state, pointer, place)) return *result;
  }
  return driver_call();
}

// Opens memory of a pool for a device to which the program grants access. Call it with the mutex held.
void set_pool_access(MemoryState& state, Pool& pool, const CUmemAccessDesc& access) {
  if (access.location.type != CU_MEM_LOCATION_TYPE_DEVICE || access.location.id == pool.owner.device) return;
  // A device has no address that could identify it in the table of peers. Its number plus one is used
  // instead.
  const void* const user = reinterpret_cast<const void*>(static_cast<std::uintptr_t>(access.location.id) + 1);
  if (access.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
    state.peers.disable(user, &pool);
  } else {
    state.peers.enable(user, access.location.id, &pool);
  }
  for (auto& [id, region] : state.regions.by_id()) {
    if (region.use == RegionUse::kProgram || region.owner.key() != &pool) continue;
    for (auto& [address, mapping] : region.mappings) {
      if (state.driver.cuMemSetAccess(address, mapping.bytes, &access, 1) == CUDA_SUCCESS) {
        mapping.set_access(access);
      }
    }
  }
}

bool answer(MemoryState& state, Pool& pool, CUmemPool_attribute attribute, void* value) {
  auto* const number = static_cast<cuuint64_t*>(value);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      *number = state.regions.block_bytes(&pool);
      return true;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      *number = pool.reserved_high;
      return true;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      *number = pool.used;
      return true;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      *number = pool.used_high;
      return true;
    default:
      return false;
  }
}

// Returns a pool that is already known, on any device.
Pool* known_pool(MemoryState& state, CUmemoryPool handle) {
  int devices = 0;
  {
    const std::shared_lock lock(state.mutex);
    const auto found = state.pools.find(handle);
    if (found != state.pools.end()) return found->second.get();
  }
  if (call_real(real().cuDeviceGetCount, &devices) != CUDA_SUCCESS) return nullptr;
  for (int device = 0; device < devices; ++device) {
    if (Pool* pool = find_pool(state, handle, device)) return pool;
  }
  return nullptr;
}

}  // namespace

namespace hook {

CUresult cuMemAllocAsync(CUdeviceptr* pointer, size_t bytes, CUstream stream) {
  return allocate(pointer, bytes, nullptr, stream, false,
                  "cuMemAllocAsync (into a graph or a pool that is shared)",
                  [&] { return call_real(real().cuMemAllocAsync, pointer, bytes, stream); });
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr* pointer, size_t bytes, CUstream stream) {
  return allocate(pointer, bytes, nullptr, stream, true,
                  "cuMemAllocAsync (into a graph or a pool that is shared)",
                  [&] { return call_real(real().cuMemAllocAsync_ptsz, pointer, bytes, stream); });
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool, CUstream stream) {
  const auto driver_call = [&] {
    return call_real(real().cuMemAllocFromPoolAsync, pointer, bytes, pool, stream);
  };
  if (pool == nullptr) return driver_call();
  return allocate(pointer, bytes, pool, stream, false,
                  "cuMemAllocFromPoolAsync (into a graph or a pool that is shared)", driver_call);
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* pointer, size_t bytes, CUmemoryPool pool,
                                      CUstream stream) {
  const auto driver_call = [&] {
    return call_real(real().cuMemAllocFromPoolAsync_ptsz, pointer, bytes, pool, stream);
  };
  if (pool == nullptr) return driver_call();
  return allocate(pointer, bytes, pool, stream, true,
                  "cuMemAllocFromPoolAsync (into a graph or a pool that is shared)", driver_call);
}

CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) {
  return free_async(pointer, stream, false,
                    [&] { return call_real(real().cuMemFreeAsync, pointer, stream); });
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream) {
  return free_async(pointer, stream, true,
                    [&] { return call_real(real().cuMemFreeAsync_ptsz, pointer, stream); });
}

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  MemoryState& state = shim_memory().state();
  const CUresult result = call_real(real().cuMemPoolCreate, pool, properties);
  if (result != CUDA_SUCCESS || !is_device_pool(*properties) ||
      !state.facts_for(properties->location.id).movable) {
    return result;
  }
  const std::unique_lock lock(state.mutex);
  add_pool(state, *pool, properties->location.id, properties->maxSize);
  return result;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  const CUresult result = call_real(real().cuMemPoolDestroy, pool);
  if (result == CUDA_SUCCESS) end_pool(shim_memory().state(), pool);
  return result;
}

CUresult cuMemPoolTrimTo(CUmemoryPool handle, size_t limit) {
  MemoryState& state = shim_memory().state();
  const CUresult result = call_real(real().cuMemPoolTrimTo, handle, limit);
  Pool* pool = result == CUDA_SUCCESS ? known_pool(state, handle) : nullptr;
  if (pool == nullptr) return result;
  std::vector<Region> gone;
  {
    const std::unique_lock lock(state.mutex);
    reclaim_freed(state, *pool, gone);
    trim_pool(state, *pool, limit, gone);
  }
  drop_regions(state, gone);
  return result;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  MemoryState& state = shim_memory().state();
  const CUresult result = call_real(real().cuMemPoolSetAttribute, handle, attribute, value);
  Pool* pool = result == CUDA_SUCCESS ? known_pool(state, handle) : nullptr;
  if (pool == nullptr) return result;
  const std::unique_lock lock(state.mutex);
  if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) pool->threshold = *static_cast<cuuint64_t*>(value);
  if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) pool->reserved_high = state.regions.block_bytes(pool);
  if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) pool->used_high = pool->used;
  return result;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  MemoryState& state = shim_memory().state();
  const CUresult result = call_real(real().cuMemPoolGetAttribute, handle, attribute, value);
  Pool* pool = result == CUDA_SUCCESS ? known_pool(state, handle) : nullptr;
  if (pool == nullptr) return result;
  const std::shared_lock lock(state.mutex);
  answer(state, *pool, attribute, value);
  return result;
}

CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* access, size_t count) {
  MemoryState& state = shim_memory().state();
  const CUresult result = call_real(real().cuMemPoolSetAccess, handle, access, count);
  Pool* pool = result == CUDA_SUCCESS ? known_pool(state, handle) : nullptr;
  if (pool == nullptr) return result;
  const std::unique_lock lock(state.mutex);
  for (std::size_t i = 0; i < count; ++i) set_pool_access(state, *pool, access[i]);
  return result;
}

}  // namespace hook
}  // namespace ckpt::shim
