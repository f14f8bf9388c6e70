// SPDX-License-Identifier: Apache-2.0
// The virtual memory management API.
#include "tests/simulators/cudasim/driver/api.h"

namespace cudasim {
namespace {

CUresult check_properties(const CUmemAllocationProp* properties) {
  CUDASIM_CHECK(properties != nullptr && properties->type == CU_MEM_ALLOCATION_TYPE_PINNED,
                CUDA_ERROR_INVALID_VALUE);
  CUDASIM_CHECK(properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_NOT_SUPPORTED);
  CUDASIM_CHECK(Process::get().valid_device(properties->location.id), CUDA_ERROR_INVALID_DEVICE);
  const unsigned types = properties->requestedHandleTypes;
  CUDASIM_CHECK((types & ~static_cast<unsigned>(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) == 0,
                CUDA_ERROR_NOT_SUPPORTED);
  return CUDA_SUCCESS;
}

CUresult enter_vmm() {
  return Process::get().ready();
}

// Returns a context of the device. Unmapping during running work also faults on hardware, but the mapping
// calls must report a context's sticky error.
CUresult context_of_device(int ordinal, Context** out) {
  Shared lock(Process::get().lock);
  *out = Process::get().context_for(ordinal);
  CUDASIM_CHECK(*out != nullptr, CUDA_ERROR_INVALID_CONTEXT);
  return (*out)->error();
}

}  // namespace
}  // namespace cudasim

namespace cudasim::api {

CUresult cuMemGetAllocationGranularity(std::size_t* granularity, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags) {
  CUDASIM_TRY(enter_vmm());
  CUDASIM_CHECK(granularity != nullptr, CUDA_ERROR_INVALID_VALUE);
  CUDASIM_TRY(check_properties(properties));
  *granularity = kGranularity;
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long flags) {
  CUDASIM_TRY(enter_vmm());
  CUDASIM_CHECK(handle != nullptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
  CUDASIM_TRY(check_properties(properties));
  CUDASIM_CHECK(bytes > 0 && bytes % kGranularity == 0, CUDA_ERROR_INVALID_VALUE);
  Context* owner = nullptr;
  CUDASIM_TRY(context_of_device(properties->location.id, &owner));
  std::shared_ptr<Physical> physical;
  // Create the memory without the lock, since filling new memory takes long.
  CUDASIM_TRY(Memory::create(owner, bytes, *properties, false, &physical));
  Exclusive lock(Process::get().lock);
  *handle = Memory::get().add_handle(physical);
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  CUDASIM_TRY(enter_vmm());
  Exclusive lock(Process::get().lock);
  return Memory::get().release_handle(handle);
}

CUresult cuMemAddressReserve(CUdeviceptr* address, std::size_t bytes, std::size_t alignment, CUdeviceptr hint,
                             unsigned long long flags) {
  CUDASIM_TRY(enter_vmm());
  CUDASIM_CHECK(address != nullptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
  Exclusive lock(Process::get().lock);
  std::uint64_t at = 0;
  CUDASIM_TRY(Memory::get().reserve(bytes, alignment, hint, &at));
  *address = at;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, std::size_t bytes) {
  CUDASIM_TRY(enter_vmm());
  Exclusive lock(Process::get().lock);
  return Memory::get().unreserve(address, bytes);
}

CUresult cuMemMap(CUdeviceptr address, std::size_t bytes, std::size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
  CUDASIM_TRY(enter_vmm());
  CUDASIM_CHECK(offset == 0, CUDA_ERROR_NOT_SUPPORTED);
  CUDASIM_CHECK(flags == 0, CUDA_ERROR_INVALID_VALUE);
  Exclusive lock(Process::get().lock);
  return Memory::get().map(address, bytes, handle);
}

CUresult cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
  CUDASIM_TRY(enter_vmm());
  Exclusive lock(Process::get().lock);
  return Memory::get().unmap(address, bytes);
}

CUresult cuMemSetAccess(CUdeviceptr address, std::size_t bytes, const CUmemAccessDesc* access,
                        std::size_t count) {
  CUDASIM_TRY(enter_vmm());
  CUDASIM_CHECK(access != nullptr && count > 0, CUDA_ERROR_INVALID_VALUE);
  Exclusive lock(Process::get().lock);
  for (std::size_t i = 0; i < count; i++) {
    CUDASIM_CHECK(access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_NOT_SUPPORTED);
    CUDASIM_CHECK(Process::get().valid_device(access[i].location.id), CUDA_ERROR_INVALID_DEVICE);
    CUDASIM_TRY(Memory::get().set_access(address, bytes, access[i].location.id, access[i].flags));
  }
  return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr address) {
  CUDASIM_TRY(enter_vmm());
  CUDASIM_CHECK(flags != nullptr && location != nullptr, CUDA_ERROR_INVALID_VALUE);
  Shared lock(Process::get().lock);
  const Mapping* mapping = Memory::get().find_mapping(address);
  CUDASIM_CHECK(mapping != nullptr && location->type == CU_MEM_LOCATION_TYPE_DEVICE,
                CUDA_ERROR_INVALID_VALUE);
  CUDASIM_CHECK(Process::get().valid_device(location->id), CUDA_ERROR_INVALID_DEVICE);
  const auto found = mapping->access.find(location->id);
  *flags = found != mapping->access.end() ? found->second : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  CUDASIM_TRY(enter_vmm());
  CUDASIM_CHECK(out != nullptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
  CUDASIM_CHECK(type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUDA_ERROR_NOT_SUPPORTED);
  Shared lock(Process::get().lock);
  const std::shared_ptr<Physical> physical = Memory::get().find_handle(handle);
  CUDASIM_CHECK(physical != nullptr && physical->exportable, CUDA_ERROR_INVALID_VALUE);
  return Memory::get().share(physical, static_cast<int*>(out));
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* os_handle,
                                        CUmemAllocationHandleType type) {
  CUDASIM_TRY(enter_vmm());
  CUDASIM_CHECK(handle != nullptr, CUDA_ERROR_INVALID_VALUE);
  CUDASIM_CHECK(type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUDA_ERROR_NOT_SUPPORTED);
  Context* owner = nullptr;
  CUDASIM_TRY(enter(&owner));
  Exclusive lock(Process::get().lock);
  std::shared_ptr<Physical> physical;
  const auto fd = static_cast<int>(reinterpret_cast<std::intptr_t>(os_handle));
  CUDASIM_CHECK(fd >= 0, CUDA_ERROR_INVALID_VALUE);
  CUDASIM_TRY(Memory::get().import(owner, fd, &physical));
  *handle = Memory::get().add_handle(physical);
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  CUDASIM_TRY(enter_vmm());
  CUDASIM_CHECK(handle != nullptr, CUDA_ERROR_INVALID_VALUE);
  Exclusive lock(Process::get().lock);
  return Memory::get().retain(reinterpret_cast<std::uint64_t>(address), handle);
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                CUmemGenericAllocationHandle handle) {
  CUDASIM_TRY(enter_vmm());
  CUDASIM_CHECK(properties != nullptr, CUDA_ERROR_INVALID_VALUE);
  Shared lock(Process::get().lock);
  const std::shared_ptr<Physical> physical = Memory::get().find_handle(handle);
  CUDASIM_CHECK(physical != nullptr, CUDA_ERROR_INVALID_VALUE);
  *properties = physical->properties;
  return CUDA_SUCCESS;
}

}  // namespace cudasim::api
