// SPDX-License-Identifier: Apache-2.0
// Device memory that another process can map. It is physical memory of the driver's virtual memory API,
// exported as a POSIX descriptor, or the import of such a descriptor. One allocation is mapped completely, at
// one reserved address.
// Threads: each object is used by one thread at a time, with a context of its device current. Ownership: an
// object owns its address range, its mapping and its handle. Destruction unmaps, releases and frees the range
// in this order. The physical memory is freed when its last holder in any process has released it. The caller
// must ensure that no work uses the memory any more, and destroy the objects before the context. Errors:
// kOutOfMemory, kNotSupported (a device without virtual memory management or descriptors), kDevice.
#pragma once

#include <cstddef>
#include <cstdint>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"
#include "libckpt/cuda/driver.h"

namespace ckpt {

// An address range with one allocation mapped into it. The device can read and write it.
class MappedMemory {
 public:
  MappedMemory() = default;
  // Maps the allocation. Takes ownership of `handle`, even on failure.
  static Result<MappedMemory> map(const DriverApi& api, CUdevice device, CUmemGenericAllocationHandle handle,
                                  std::size_t bytes);
  MappedMemory(MappedMemory&& other) noexcept;
  MappedMemory& operator=(MappedMemory&& other) noexcept;
  ~MappedMemory() { reset(); }

  [[nodiscard]] CUdeviceptr pointer() const noexcept { return pointer_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] CUmemGenericAllocationHandle handle() const noexcept { return handle_; }
  [[nodiscard]] const DriverApi& api() const noexcept { return *api_; }
  void reset() noexcept;

 private:
  const DriverApi* api_ = nullptr;
  CUmemGenericAllocationHandle handle_ = 0;
  CUdeviceptr pointer_ = 0;
  std::size_t bytes_ = 0;
  bool mapped_ = false;
};

// Returns `bytes` rounded up to the granularity of cuMemCreate on this device.
Result<std::size_t> round_to_granularity(const DriverApi& api, CUdevice device, std::size_t bytes);

// New exportable memory with undefined content. It supports GPUDirect RDMA if the device does.
class DeviceMemory {
 public:
  static Result<DeviceMemory> create(const DriverApi& api, CUdevice device, std::size_t bytes);

  [[nodiscard]] CUdeviceptr pointer() const noexcept { return mapped_.pointer(); }
  // Returns the size, rounded up to the granularity.
  [[nodiscard]] std::size_t bytes() const noexcept { return mapped_.bytes(); }
  [[nodiscard]] CUmemGenericAllocationHandle handle() const noexcept { return mapped_.handle(); }
  Result<UniqueFd> export_fd() const;

 private:
  explicit DeviceMemory(MappedMemory mapped) : mapped_(std::move(mapped)) {}
  MappedMemory mapped_;
};

// Memory that another process has exported. The caller still owns the descriptor and may close it as soon as
// import returns.
class ImportedMemory {
 public:
  static Result<ImportedMemory> import(const DriverApi& api, CUdevice device, int fd, std::size_t bytes);

  [[nodiscard]] CUdeviceptr pointer() const noexcept { return mapped_.pointer(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return mapped_.bytes(); }

 private:
  explicit ImportedMemory(MappedMemory mapped) : mapped_(std::move(mapped)) {}
  MappedMemory mapped_;
};

// Exports an allocation by its handle.
Result<UniqueFd> export_allocation(const DriverApi& api, CUmemGenericAllocationHandle handle);

// The allocation behind a pointer that the program has mapped itself. The object retains the handle. Returns
// kNotSupported if the pointer's memory cannot be exported (cuMemAlloc, module globals, allocations made
// without a descriptor type).
class ForeignAllocation {
 public:
  static Result<ForeignAllocation> find(const DriverApi& api, CUdeviceptr pointer);
  ForeignAllocation(ForeignAllocation&& other) noexcept;
  ForeignAllocation& operator=(ForeignAllocation&& other) = delete;
  ~ForeignAllocation();

  [[nodiscard]] CUdeviceptr base() const noexcept { return base_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] CUmemGenericAllocationHandle handle() const noexcept { return handle_; }

 private:
  ForeignAllocation(const DriverApi* api, CUmemGenericAllocationHandle handle) : api_(api), handle_(handle) {}
  const DriverApi* api_;
  CUmemGenericAllocationHandle handle_;
  CUdeviceptr base_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace ckpt
