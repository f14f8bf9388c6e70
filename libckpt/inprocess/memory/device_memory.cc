// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/memory/device_memory.h"

#include <utility>

namespace ckpt {
namespace {

CUmemAllocationProp exportable_property(CUdevice device) {
  CUmemAllocationProp property{};
  property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  property.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  property.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  property.location.id = device;
  return property;
}

bool has_attribute(const DriverApi& api, CUdevice device, CUdevice_attribute attribute) {
  int value = 0;
  return api.cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS && value != 0;
}

Result<CUmemAllocationProp> property_for(const DriverApi& api, CUdevice device) {
  if (!has_attribute(api, device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) ||
      !has_attribute(api, device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)) {
    return Error(
        ErrorCode::kNotSupported,
        "GPU " + std::to_string(device) + " cannot share memory by descriptors (virtual memory management)");
  }
  CUmemAllocationProp property = exportable_property(device);
  if (has_attribute(api, device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)) {
    property.allocFlags.gpuDirectRDMACapable = 1;
  }
  return property;
}

Result<std::size_t> round_up(const DriverApi& api, const CUmemAllocationProp& property, std::size_t bytes) {
  std::size_t granularity = 0;
  CKPT_CUDA_TRY(api,
                cuMemGetAllocationGranularity(&granularity, &property, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  std::size_t padded = 0;
  if (granularity == 0 || bytes == 0 || __builtin_add_overflow(bytes, granularity - 1, &padded)) {
    return Error(ErrorCode::kInvalidArgument,
                 "An allocation of " + std::to_string(bytes) + " bytes is not possible");
  }
  return padded - padded % granularity;
}

}  // namespace

Result<std::size_t> round_to_granularity(const DriverApi& api, CUdevice device, std::size_t bytes) {
  CKPT_TRY(property, property_for(api, device));
  return round_up(api, property, bytes);
}

Result<MappedMemory> MappedMemory::map(const DriverApi& api, CUdevice device,
                                       CUmemGenericAllocationHandle handle, std::size_t bytes) {
  MappedMemory memory;
  memory.api_ = &api;
  memory.handle_ = handle;
  memory.bytes_ = bytes;
  CKPT_CUDA_TRY(api, cuMemAddressReserve(&memory.pointer_, bytes, 0, 0, 0));
  CKPT_CUDA_TRY(api, cuMemMap(memory.pointer_, bytes, 0, handle, 0));
  memory.mapped_ = true;
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CKPT_CUDA_TRY(api, cuMemSetAccess(memory.pointer_, bytes, &access, 1));
  return memory;
}

MappedMemory::MappedMemory(MappedMemory&& other) noexcept
    : api_(other.api_),
      handle_(std::exchange(other.handle_, 0)),
      pointer_(std::exchange(other.pointer_, 0)),
      bytes_(std::exchange(other.bytes_, 0)),
      mapped_(std::exchange(other.mapped_, false)) {}

MappedMemory& MappedMemory::operator=(MappedMemory&& other) noexcept {
  if (this != &other) {
    reset();
    api_ = other.api_;
    handle_ = std::exchange(other.handle_, 0);
    pointer_ = std::exchange(other.pointer_, 0);
    bytes_ = std::exchange(other.bytes_, 0);
    mapped_ = std::exchange(other.mapped_, false);
  }
  return *this;
}

void MappedMemory::reset() noexcept {
  if (mapped_) api_->cuMemUnmap(pointer_, bytes_);
  if (handle_ != 0) api_->cuMemRelease(handle_);
  if (pointer_ != 0) api_->cuMemAddressFree(pointer_, bytes_);
  mapped_ = false;
  handle_ = 0;
  pointer_ = 0;
  bytes_ = 0;
}

Result<DeviceMemory> DeviceMemory::create(const DriverApi& api, CUdevice device, std::size_t bytes) {
  CKPT_TRY(property, property_for(api, device));
  CKPT_TRY(rounded, round_up(api, property, bytes));
  CUmemGenericAllocationHandle handle = 0;
  CKPT_CUDA_TRY(api, cuMemCreate(&handle, rounded, &property, 0));
  CKPT_TRY(mapped, MappedMemory::map(api, device, handle, rounded));
  return DeviceMemory(std::move(mapped));
}

Result<UniqueFd> DeviceMemory::export_fd() const {
  return export_allocation(mapped_.api(), mapped_.handle());
}

Result<ImportedMemory> ImportedMemory::import(const DriverApi& api, CUdevice device, int fd,
                                              std::size_t bytes) {
  CUmemGenericAllocationHandle handle = 0;
  void* const os_handle = reinterpret_cast<void*>(static_cast<std::uintptr_t>(fd));
  CKPT_CUDA_TRY(api,
                cuMemImportFromShareableHandle(&handle, os_handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  CKPT_TRY(mapped, MappedMemory::map(api, device, handle, bytes));
  return ImportedMemory(std::move(mapped));
}

Result<UniqueFd> export_allocation(const DriverApi& api, CUmemGenericAllocationHandle handle) {
  int fd = -1;
  CKPT_CUDA_TRY(api, cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  return UniqueFd(fd);
}

Result<ForeignAllocation> ForeignAllocation::find(const DriverApi& api, CUdeviceptr pointer) {
  CUmemGenericAllocationHandle handle = 0;
  if (api.cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(pointer)) != CUDA_SUCCESS) {
    return Error(ErrorCode::kNotSupported, "The memory does not come from cuMemCreate");
  }
  ForeignAllocation found(&api, handle);
  CUmemAllocationProp property{};
  CKPT_CUDA_TRY(api, cuMemGetAllocationPropertiesFromHandle(&property, handle));
  if ((property.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == 0 ||
      property.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return Error(ErrorCode::kNotSupported,
                 "The memory was not created with CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR");
  }
  CKPT_CUDA_TRY(api, cuMemGetAddressRange_v2(&found.base_, &found.bytes_, pointer));
  // Only a successful export proves that the memory can be exported: a driver may refuse an export for
  // reasons that no property shows.
  CKPT_TRYV(export_allocation(api, handle));
  return found;
}

ForeignAllocation::ForeignAllocation(ForeignAllocation&& other) noexcept
    : api_(other.api_), handle_(std::exchange(other.handle_, 0)), base_(other.base_), bytes_(other.bytes_) {}

ForeignAllocation::~ForeignAllocation() {
  if (handle_ != 0) api_->cuMemRelease(handle_);
}

}  // namespace ckpt
