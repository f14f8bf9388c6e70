// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/ncclsim/driver/device_memory.h"

namespace ncclsim {

ncclResult_t DeviceMemory::make(CUdevice device, std::size_t bytes, std::unique_ptr<DeviceMemory>* out) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  std::size_t step = 0;
  NCCLSIM_CUDA(cuMemGetAllocationGranularity, &step, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  NCCLSIM_CHECK(step > 0 && bytes <= SIZE_MAX - step, ncclInvalidArgument, "%zu bytes cannot be allocated",
                bytes);
  bytes = (bytes + step - 1) / step * step;
  CUmemGenericAllocationHandle handle = 0;
  NCCLSIM_CUDA(cuMemCreate, &handle, bytes, &properties, 0);
  std::unique_ptr<DeviceMemory> made(new DeviceMemory(handle, bytes));
  NCCLSIM_TRY(made->map(device));
  *out = std::move(made);
  return ncclSuccess;
}

ncclResult_t DeviceMemory::import(CUdevice device, int descriptor, std::size_t bytes,
                                  std::unique_ptr<DeviceMemory>* out) {
  CUmemGenericAllocationHandle handle = 0;
  void* os_handle = reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor));
  NCCLSIM_CUDA(cuMemImportFromShareableHandle, &handle, os_handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  std::unique_ptr<DeviceMemory> made(new DeviceMemory(handle, bytes));
  NCCLSIM_TRY(made->map(device));
  *out = std::move(made);
  return ncclSuccess;
}

ncclResult_t DeviceMemory::map(CUdevice device) {
  NCCLSIM_CUDA(cuMemAddressReserve, &address_, bytes_, 0, 0, 0);
  NCCLSIM_CUDA(cuMemMap, address_, bytes_, 0, handle_, 0);
  mapped_ = true;
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  NCCLSIM_CUDA(cuMemSetAccess, address_, bytes_, &access, 1);
  return ncclSuccess;
}

ncclResult_t DeviceMemory::export_to(int* descriptor) const {
  NCCLSIM_CUDA(cuMemExportToShareableHandle, descriptor, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
               0);
  return ncclSuccess;
}

DeviceMemory::~DeviceMemory() {
  if (mapped_) driver().cuMemUnmap(address_, bytes_);
  if (address_ != 0) driver().cuMemAddressFree(address_, bytes_);
  driver().cuMemRelease(handle_);
}

}  // namespace ncclsim
