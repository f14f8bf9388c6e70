// SPDX-License-Identifier: Apache-2.0
// Device memory of the driver's virtual memory API, as NCCL allocates it: mapped, exportable, or imported.
//
// Threads: one at a time. Ownership: the object's; its end waits for no stream.
// Errors: ncclUnhandledCudaError.
#pragma once

#include <cstddef>
#include <memory>

#include "tests/simulators/ncclsim/driver/driver.h"

namespace ncclsim {

class DeviceMemory {
 public:
  // At least `bytes`, on the device of the current context.
  static ncclResult_t make(CUdevice device, std::size_t bytes, std::unique_ptr<DeviceMemory>* out);
  // Maps what another process exported; the descriptor stays the caller's.
  static ncclResult_t import(CUdevice device, int descriptor, std::size_t bytes,
                             std::unique_ptr<DeviceMemory>* out);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // A new descriptor of it, which the caller closes.
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
