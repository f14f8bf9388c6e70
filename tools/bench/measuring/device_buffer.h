// SPDX-License-Identifier: Apache-2.0
// Device memory, pinned and plain host memory, and streams for benchmarks. Device memory is written when it
// is allocated, because the first access on a software device takes longer than on a GPU.
// Threads: one. Ownership: the Device outlives them. Errors: the driver's.
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

  // Fills the memory with bytes that no codec can shorten. A different seed yields different bytes.
  Result<void> fill_random(std::uint64_t seed);
  Result<void> write(std::uint64_t offset, std::span<const std::byte> bytes);
  // Fills the memory with repetitions of `pattern`.
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

// Plain host memory, in huge pages where available, so that page tables do not slow down the measured work.
// The object is empty if the allocation failed.
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

// Fills `bytes` with random bytes. The same seed yields the same bytes.
void fill_random(std::span<std::byte> bytes, std::uint64_t seed);

// Returns the target device of a move: the second device, or the first if there is only one.
Result<int> target_ordinal();

}  // namespace ckpt::bench
