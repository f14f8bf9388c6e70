// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/shim/memory/physical.h"

#include <algorithm>
#include <bit>

namespace ckpt::shim {
namespace {

bool has(const RealDriver& driver, int device, CUdevice_attribute attribute) {
  int value = 0;
  return driver.cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS && value != 0;
}

bool has_functions(const RealDriver& driver) {
  return driver.cuDeviceGetAttribute != nullptr && driver.cuMemCreate != nullptr &&
         driver.cuMemRelease != nullptr && driver.cuMemAddressReserve != nullptr &&
         driver.cuMemAddressFree != nullptr && driver.cuMemMap != nullptr && driver.cuMemUnmap != nullptr &&
         driver.cuMemSetAccess != nullptr && driver.cuMemGetAllocationGranularity != nullptr &&
         driver.cuMemExportToShareableHandle != nullptr && driver.cuMemImportFromShareableHandle != nullptr;
}

}  // namespace

DeviceFacts facts_of(const RealDriver& driver, int device) {
  DeviceFacts facts;
  if (!has_functions(driver)) return facts;
  if (!has(driver, device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) return facts;
  if (!has(driver, device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)) return facts;
  facts.rdma = has(driver, device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
  const CUmemAllocationProp property = block_property(facts, device);
  std::size_t granule = 0;
  if (driver.cuMemGetAllocationGranularity(&granule, &property, CU_MEM_ALLOC_GRANULARITY_MINIMUM) !=
      CUDA_SUCCESS) {
    return facts;
  }
  constexpr std::size_t kSlab = std::size_t{2} << 20;
  facts.granule = std::max(kSlab, granule);
  facts.movable = std::has_single_bit(facts.granule);
  return facts;
}

CUmemAllocationProp block_property(const DeviceFacts& facts, int device) {
  CUmemAllocationProp property{};
  property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  property.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  property.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  property.location.id = device;
  property.allocFlags.gpuDirectRDMACapable = facts.rdma ? 1 : 0;
  return property;
}

CUmemAccessDesc access_of(int device, CUmemAccess_flags flags) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = flags;
  return access;
}

CUresult create_physical(const RealDriver& driver, Region& region) {
  return driver.cuMemCreate(&region.handle, region.bytes, &region.made, region.flags);
}

CUresult map_one(const RealDriver& driver, const Mapping& mapping, CUmemGenericAllocationHandle handle) {
  CUresult result = driver.cuMemMap(mapping.address, mapping.bytes, mapping.offset, handle, 0);
  if (result != CUDA_SUCCESS) return result;
  for (const CUmemAccessDesc& access : mapping.access) {
    result = driver.cuMemSetAccess(mapping.address, mapping.bytes, &access, 1);
    if (result == CUDA_SUCCESS) continue;
    driver.cuMemUnmap(mapping.address, mapping.bytes);
    return result;
  }
  return CUDA_SUCCESS;
}

CUresult map_everywhere(const RealDriver& driver, const Region& region) {
  for (auto next = region.mappings.begin(); next != region.mappings.end(); ++next) {
    const CUresult result = map_one(driver, next->second, region.handle);
    if (result == CUDA_SUCCESS) continue;
    while (next != region.mappings.begin()) {
      --next;
      driver.cuMemUnmap(next->second.address, next->second.bytes);
    }
    return result;
  }
  return CUDA_SUCCESS;
}

CUresult unmap_everywhere(const RealDriver& driver, const Region& region) {
  for (auto next = region.mappings.begin(); next != region.mappings.end(); ++next) {
    const CUresult result = driver.cuMemUnmap(next->second.address, next->second.bytes);
    if (result == CUDA_SUCCESS) continue;
    while (next != region.mappings.begin()) {
      --next;
      map_one(driver, next->second, region.handle);
    }
    return result;
  }
  return CUDA_SUCCESS;
}

Result<UniqueFd> export_physical(const RealDriver& driver, CUmemGenericAllocationHandle handle) {
  int fd = -1;
  const CUresult result =
      driver.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  if (result != CUDA_SUCCESS) return driver_error(driver, result, "Cannot export device memory");
  return UniqueFd(fd);
}

Error driver_error(const RealDriver& driver, CUresult result, const std::string& what) {
  const char* name = nullptr;
  if (driver.cuGetErrorName == nullptr || driver.cuGetErrorName(result, &name) != CUDA_SUCCESS)
    name = nullptr;
  const ErrorCode code = result == CUDA_ERROR_OUT_OF_MEMORY ? ErrorCode::kOutOfMemory : ErrorCode::kDevice;
  return Error(code, ErrorDomain::kCuda, result, what + ": " + (name != nullptr ? name : "unknown error"));
}

SomeContext::SomeContext(const RealDriver& driver, int device, CUcontext other)
    : driver_(driver), device_(device) {
  CUcontext current = nullptr;
  if (driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current != nullptr) return;
  unsigned flags = 0;
  int active = 0;
  CUcontext primary = nullptr;
  if (driver.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active != 0) {
    retained_ = driver.cuDevicePrimaryCtxRetain(&primary, device) == CUDA_SUCCESS;
  }
  const CUcontext chosen = retained_ ? primary : other;
  pushed_ = chosen != nullptr && driver.cuCtxPushCurrent_v2(chosen) == CUDA_SUCCESS;
}

SomeContext::~SomeContext() {
  CUcontext popped = nullptr;
  if (pushed_) driver_.cuCtxPopCurrent_v2(&popped);
  if (retained_) driver_.cuDevicePrimaryCtxRelease_v2(device_);
}

}  // namespace ckpt::shim
