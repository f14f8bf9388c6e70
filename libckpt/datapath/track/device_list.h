// SPDX-License-Identifier: Apache-2.0
// The buffers that a launch over a list needs: a pinned host block and its counterpart in device memory. An
// event shows when both may be reused. They are made once, so that a launch allocates nothing.
// Threads: one at a time. Errors: the driver's.
#pragma once

#include <cstddef>

#include "libckpt/cuda/driver.h"

namespace ckpt::track {

class DeviceList {
 public:
  static Result<DeviceList> create(const Device& device, std::size_t bytes);
  DeviceList(DeviceList&& other) noexcept;
  DeviceList& operator=(DeviceList&&) = delete;
  ~DeviceList();

  [[nodiscard]] std::byte* host() const noexcept { return static_cast<std::byte*>(host_); }
  [[nodiscard]] CUdeviceptr device_address() const noexcept { return device_address_; }

  // Copies [offset, offset + bytes) of the block in one direction, on `stream`.
  Result<void> upload(CUstream stream, std::size_t offset, std::size_t bytes);
  Result<void> download(CUstream stream, std::size_t offset, std::size_t bytes);
  // Marks the work enqueued on `stream` so far as a use of the block.
  Result<void> mark(CUstream stream);
  // Makes later work on `stream` wait for the last marked use of the block.
  Result<void> stream_wait(CUstream stream) const;
  [[nodiscard]] bool busy() const noexcept { return busy_; }
  Result<bool> ready();
  Result<void> wait();

 private:
  explicit DeviceList(const Device& device) : device_(&device) {}
  const Device* device_;
  void* host_ = nullptr;
  CUdeviceptr device_address_ = 0;
  CUevent done_ = nullptr;
  bool busy_ = false;
};

}  // namespace ckpt::track
