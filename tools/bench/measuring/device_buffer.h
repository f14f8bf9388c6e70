// SPDX-License-Identifier: Apache-2.0
// Device memory, pinned and plain host memory, and streams for benches. Device memory is populated (written)
// when it is made: a software device's first touch costs what no GPU's does. Threads: one. Ownership: the
// Device outlives them. Errors: the driver's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "libckpt/base/result.h"
#include "libckpt/cuda/driver.h"

namespace ckpt::bench {

class DeviceBuffer {
 public:
  static Result<std::unique_ptr<DeviceBuffer>> create(const Device& device, std::uint64_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  // Bytes that no codec shortens; another seed gives other bytes.
  Result<void> fill_random(std::uint64_t seed);
  Result<void> write(std::uint64_t offset, std::span<const std::byte> bytes);
  // The same bytes over and over, to the end of the memory.
  Result<void> fill_with(std::span<const std::byte> pattern);
  [[nodiscard]] CUdeviceptr pointer() const noexcept { return pointer_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] const Device& device() const noexcept { return device_; }

 private:
  DeviceBuffer(const Device& device, CUdeviceptr pointer, std::uint64_t bytes)
      : device_(device), pointer_(pointer), bytes_(bytes) {}
  const Device& device_;
  CUdeviceptr pointer_;
  std::uint64_t bytes_;
};

class PinnedBuffer {
 public:
  static Result<std::unique_ptr<PinnedBuffer>> create(const Device& device, std::size_t bytes);
  ~PinnedBuffer();
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }

 private:
  PinnedBuffer(const Device& device, std::span<std::byte> bytes) : device_(device), bytes_(bytes) {}
  const Device& device_;
  std::span<std::byte> bytes_;
};

// Plain host memory, in huge pages where there are any: what is measured does not pay for page tables. Empty
// if there is none left.
class HostMemory {
 public:
  explicit HostMemory(std::size_t bytes);
  [[nodiscard]] std::span<std::byte> bytes() const { return {data_.get(), bytes_}; }

 private:
  struct Free {
    void operator()(std::byte* data) const noexcept;
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t bytes_;
};

class BenchStream {
 public:
  static Result<std::unique_ptr<BenchStream>> create(const Device& device);
  ~BenchStream();
  BenchStream(const BenchStream&) = delete;
  BenchStream& operator=(const BenchStream&) = delete;
  [[nodiscard]] CUstream get() const noexcept { return stream_; }
  Result<void> synchronize() const;

 private:
  BenchStream(const Device& device, CUstream stream) : device_(device), stream_(stream) {}
  const Device& device_;
  CUstream stream_;
};

// Random bytes; the same seed gives the same.
void fill_random(std::span<std::byte> bytes, std::uint64_t seed);

// The second device, or the first where there is only one: where the target of a move is.
Result<int> target_ordinal();

}  // namespace ckpt::bench
