// SPDX-License-Identifier: Apache-2.0
// Device memory of the driver's virtual memory API, allocated as in NCCL: mapped, exportable, or imported.
//
// Threads: one at a time. Ownership: the object's; its destructor waits for no stream. Errors:
// ncclUnhandledCudaError.
#pragma once

#include <cstddef>
#include <memory>

#include "tests/simulators/ncclsim/driver/driver.h"

namespace ncclsim {

class DeviceMemory {
 public:
  // Allocates at least `bytes` on the device of the current context.
  static ncclResult_t make(CUdevice device, std::size_t bytes, std::unique_ptr<DeviceMemory>* out);
  // Maps memory that another process exported. The caller still owns the descriptor.
  static ncclResult_t import(CUdevice device, int descriptor, std::size_t bytes,
                             std::unique_ptr<DeviceMemory>* out);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Returns a new descriptor of the memory. The caller closes the descriptor.
  ncclResult_t export_to(int* descriptor) const;
  [[nodiscard]] CUdeviceptr address() const { return address_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  DeviceMemory(CUmemGenericAllocationHandle handle, std::size_t bytes) : handle_(handle), bytes_(bytes) {}
  ncclResult_t map(CUdevice device);

  CUmemGenericAllocationHandle handle_;
  std::size_t bytes_;
  CUdeviceptr address_ = 0;
  bool mapped_ = false;
};

}  // namespace ncclsim
