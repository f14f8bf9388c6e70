// SPDX-License-Identifier: Apache-2.0
// The program's own virtual memory: cuMemCreate and related functions. Its allocations are made exportable.
// The program has handles of the shim, which stay valid while the driver's handles change with a move. The
// driver manages reserved addresses, which a move does not change.
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "libckpt/inprocess/shim/core/hooks.h"
#include "libckpt/inprocess/shim/core/job_state.h"
#include "libckpt/inprocess/shim/memory/blocks.h"
#include "libckpt/inprocess/shim/memory/call_real.h"
#include "libckpt/inprocess/shim/memory/memory.h"

namespace ckpt::shim {
namespace {

constexpr unsigned kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

// Removes the program's regions `ids`, which have no references any more, from the table and returns them.
// Call it with the mutex held.
std::vector<Region> take_unused(MemoryState& state, const std::vector<std::uint64_t>& ids) {
  std::vector<Region> gone;
  gone.reserve(ids.size());
  for (const std::uint64_t id : ids) gone.push_back(*state.regions.remove(id));
  return gone;
}

// Returns the driver's handle for one of the shim's handles. Any other handle is returned unchanged. Returns
// nullopt for a handle of the shim that is no longer held.
std::optional<CUmemGenericAllocationHandle> driver_handle(MemoryState& state,
                                                          CUmemGenericAllocationHandle handle) {
  if (!RegionStore::is_handle(handle)) return handle;
  const std::shared_lock lock(state.mutex);
  const Region* region = state.regions.by_handle(handle);
  if (region == nullptr) return std::nullopt;
  return region->handle;
}

bool is_plain_device_memory(const CUmemAllocationProp& property) {
  return property.type == CU_MEM_ALLOCATION_TYPE_PINNED &&
         property.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
         (property.requestedHandleTypes & ~kDescriptor) == 0;
}

// Creates the memory as exportable. If the driver cannot (such as for compressed memory), creates it as the
// program requested.
CUresult create(MemoryState& state, Region& region) {
  region.made.requestedHandleTypes =
      static_cast<CUmemAllocationHandleType>(region.asked.requestedHandleTypes | kDescriptor);
  region.exportable = true;
  CUresult result = make_physical(state, region);
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY ||
      region.made.requestedHandleTypes == region.asked.requestedHandleTypes) {
    return result;
  }
  region.made = region.asked;
  region.exportable = false;
  const CUresult again = make_physical(state, region);
  if (again == CUDA_SUCCESS) not_movable("cuMemCreate (of memory that cannot be exported)");
  return again;
}

// Calls the driver with its own handles in place of the shim's handles.
template <class Call>
CUresult map_arrays(Call call, CUarrayMapInfo* list, unsigned count, CUstream stream) {
  MemoryState& state = shim_memory().state();
  if (list == nullptr) return call_real(call, list, count, stream);
  std::vector<CUarrayMapInfo> translated(list, list + count);
  for (CUarrayMapInfo& info : translated) {
    if (info.memHandleType != CU_MEM_HANDLE_TYPE_GENERIC) continue;
    const std::optional<CUmemGenericAllocationHandle> handle = driver_handle(state, info.memHandle.memHandle);
    if (!handle) return CUDA_ERROR_INVALID_VALUE;
    info.memHandle.memHandle = *handle;
  }
  const CUresult result = call_real(call, translated.data(), count, stream);
  if (result == CUDA_SUCCESS) not_movable("cuMemMapArrayAsync");
  return result;
}

}  // namespace

namespace hook {

CUresult cuMemMapArrayAsync(CUarrayMapInfo* list, unsigned int count, CUstream stream) {
  return map_arrays(real().cuMemMapArrayAsync, list, count, stream);
}

CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo* list, unsigned int count, CUstream stream) {
  return map_arrays(real().cuMemMapArrayAsync_ptsz, list, count, stream);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* property,
                     unsigned long long flags) {
  MemoryState& state = shim_memory().state();
  if (handle == nullptr || property == nullptr)
    return call_real(real().cuMemCreate, handle, bytes, property, flags);
  if (!is_plain_device_memory(*property) || !state.facts_for(property->location.id).movable) {
    const CUresult result = call_real(real().cuMemCreate, handle, bytes, property, flags);
    if (result == CUDA_SUCCESS) not_movable("cuMemCreate (of memory that cannot be exported)");
    return result;
  }
  Region region;
  region.bytes = bytes;
  region.owner.device = property->location.id;
  if (call_real(real().cuCtxGetCurrent, &region.owner.context) != CUDA_SUCCESS)
    region.owner.context = nullptr;
  region.asked = *property;
  region.made = *property;
  region.flags = flags;
  region.references = 1;
  const CUresult result = create(state, region);
  if (result != CUDA_SUCCESS) return result;
  RegionInfo info;
  {
    const std::unique_lock lock(state.mutex);
    const Region& added = state.regions.add(std::move(region));
    info = info_of(added);
    *handle = RegionStore::handle_of(added);
  }
  state.report_added(info);
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  MemoryState& state = shim_memory().state();
  if (!RegionStore::is_handle(handle)) return call_real(real().cuMemRelease, handle);
  std::vector<Region> gone;
  {
    const std::unique_lock lock(state.mutex);
    Region* region = state.regions.by_handle(handle);
    if (region == nullptr) return CUDA_ERROR_INVALID_VALUE;
    --region->references;
    if (RegionStore::unused(*region)) gone = take_unused(state, {region->id});
  }
  drop_regions(state, gone);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  MemoryState& state = shim_memory().state();
  if (!RegionStore::is_handle(handle)) {
    return call_real(real().cuMemMap, address, bytes, offset, handle, flags);
  }
  const std::unique_lock lock(state.mutex);
  Region* region = state.regions.by_handle(handle);
  if (region == nullptr || state.regions.touches_blocks(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = call_real(real().cuMemMap, address, bytes, offset, region->handle, flags);
  if (result == CUDA_SUCCESS) state.regions.map(*region, address, bytes, offset);
  return result;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  MemoryState& state = shim_memory().state();
  std::vector<Region> gone;
  {
    const std::unique_lock lock(state.mutex);
    if (state.regions.touches_blocks(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = call_real(real().cuMemUnmap, address, bytes);
    if (result != CUDA_SUCCESS) return result;
    gone = take_unused(state, state.regions.unmap(address, bytes));
  }
  drop_regions(state, gone);
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access, size_t count) {
  MemoryState& state = shim_memory().state();
  const std::unique_lock lock(state.mutex);
  if (state.regions.touches_blocks(address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = call_real(real().cuMemSetAccess, address, bytes, access, count);
  if (result != CUDA_SUCCESS) return result;
  for (std::size_t i = 0; i < count; ++i) state.regions.set_access(address, bytes, access[i]);
  return result;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  MemoryState& state = shim_memory().state();
  const auto pointer = reinterpret_cast<std::uint64_t>(address);
  const std::unique_lock lock(state.mutex);
  Region* region = state.regions.at(pointer);
  if (region == nullptr) return call_real(real().cuMemRetainAllocationHandle, handle, address);
  if (handle == nullptr || region->use != RegionUse::kProgram) return CUDA_ERROR_INVALID_VALUE;
  ++region->references;
  *handle = RegionStore::handle_of(*region);
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* property,
                                                CUmemGenericAllocationHandle handle) {
  MemoryState& state = shim_memory().state();
  const std::unique_lock lock(state.mutex);
  const Region* region = state.regions.by_handle(handle);
  if (region == nullptr) return call_real(real().cuMemGetAllocationPropertiesFromHandle, property, handle);
  const CUresult result = call_real(real().cuMemGetAllocationPropertiesFromHandle, property, region->handle);
  if (result == CUDA_SUCCESS) property->requestedHandleTypes = region->asked.requestedHandleTypes;
  return result;
}

CUresult cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  MemoryState& state = shim_memory().state();
  {
    const std::shared_lock lock(state.mutex);
    const Region* region = state.regions.by_handle(handle);
    if (region != nullptr && (region->asked.requestedHandleTypes & type) == 0)
      return CUDA_ERROR_INVALID_VALUE;
  }
  const std::optional<CUmemGenericAllocationHandle> real_handle = driver_handle(state, handle);
  if (!real_handle) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = call_real(real().cuMemExportToShareableHandle, out, *real_handle, type, flags);
  if (result == CUDA_SUCCESS) not_movable("cuMemExportToShareableHandle");
  return result;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle multicast, size_t multicast_offset,
                            CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes,
                            unsigned long long flags) {
  const std::optional<CUmemGenericAllocationHandle> handle = driver_handle(shim_memory().state(), memory);
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result =
      call_real(real().cuMulticastBindMem, multicast, multicast_offset, *handle, memory_offset, bytes, flags);
  if (result == CUDA_SUCCESS) not_movable("cuMulticastBindMem");
  return result;
}

}  // namespace hook
}  // namespace ckpt::shim
