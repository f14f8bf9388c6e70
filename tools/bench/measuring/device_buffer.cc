// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/measuring/device_buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace ckpt::bench {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{16} << 20;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Returns the next number of splitmix64, which is so fast that filling memory does not dominate a benchmark.
std::uint64_t next_random(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9E3779B97F4A7C15);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

}  // namespace

void fill_random(std::span<std::byte> bytes, std::uint64_t seed) {
  std::uint64_t state = seed;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t value = next_random(state);
    std::memcpy(bytes.data() + at, &value, std::min(sizeof value, bytes.size() - at));
  }
}

Result<std::unique_ptr<DeviceBuffer>> DeviceBuffer::create(const Device& device, std::uint64_t bytes) {
  const ContextScope scope(device);
  CUdeviceptr pointer = 0;
  CKPT_CUDA_TRY(device.api(), cuMemAlloc_v2(&pointer, bytes));
  std::unique_ptr<DeviceBuffer> buffer(new DeviceBuffer(device, pointer, bytes));
  CKPT_CUDA_TRY(device.api(), cuMemsetD8_v2(pointer, 0x5A, bytes));
  CKPT_CUDA_TRY(device.api(), cuCtxSynchronize());
  return buffer;
}

DeviceBuffer::~DeviceBuffer() {
  const ContextScope scope(device_);
  device_.api().cuMemFree_v2(pointer_);
}

Result<void> DeviceBuffer::fill_random(std::uint64_t seed) {
  std::vector<std::byte> piece(std::min<std::uint64_t>(kPieceBytes, bytes_));
  for (std::uint64_t at = 0; at < bytes_; at += piece.size()) {
    const std::size_t length = std::min<std::uint64_t>(piece.size(), bytes_ - at);
    bench::fill_random(std::span(piece).first(length), seed * 0x100000001B3 + at);
    CKPT_TRYV(write(at, std::span(piece).first(length)));
  }
  return ok();
}

Result<void> DeviceBuffer::write(std::uint64_t offset, std::span<const std::byte> bytes) {
  const ContextScope scope(device_);
  CKPT_CUDA_TRY(device_.api(), cuMemcpyHtoD_v2(pointer_ + offset, bytes.data(), bytes.size()));
  return ok();
}

Result<void> DeviceBuffer::fill_with(std::span<const std::byte> pattern) {
  for (std::uint64_t at = 0; at < bytes_; at += pattern.size()) {
    CKPT_TRYV(write(at, pattern.first(std::min<std::uint64_t>(pattern.size(), bytes_ - at))));
  }
  return ok();
}

Result<std::unique_ptr<PinnedBuffer>> PinnedBuffer::create(const Device& device, std::size_t bytes) {
  const ContextScope scope(device);
  void* memory = nullptr;
  CKPT_CUDA_TRY(device.api(), cuMemHostAlloc(&memory, bytes, 0));
  std::unique_ptr<PinnedBuffer> buffer(new PinnedBuffer(device, {static_cast<std::byte*>(memory), bytes}));
  fill_random(buffer->bytes(), 1);
  return buffer;
}

PinnedBuffer::~PinnedBuffer() {
  const ContextScope scope(device_);
  device_.api().cuMemFreeHost(bytes_.data());
}

HostMemory::HostMemory(std::size_t bytes)
    : data_(static_cast<std::byte*>(
          std::aligned_alloc(kHugePage, (bytes + kHugePage - 1) / kHugePage * kHugePage))),
      bytes_(data_ == nullptr ? 0 : bytes) {
  if (data_ != nullptr) (void)::madvise(data_.get(), bytes, MADV_HUGEPAGE);
}

void HostMemory::Free::operator()(std::byte* data) const noexcept {
  std::free(data);  // NOLINT: it came of aligned_alloc
}

Result<std::unique_ptr<BenchStream>> BenchStream::create(const Device& device) {
  const ContextScope scope(device);
  CUstream stream = nullptr;
  CKPT_CUDA_TRY(device.api(), cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return std::unique_ptr<BenchStream>(new BenchStream(device, stream));
}

BenchStream::~BenchStream() {
  const ContextScope scope(device_);
  device_.api().cuStreamDestroy_v2(stream_);
}

Result<void> BenchStream::synchronize() const {
  const ContextScope scope(device_);
  CKPT_CUDA_TRY(device_.api(), cuStreamSynchronize(stream_));
  return ok();
}

Result<int> target_ordinal() {
  CKPT_TRY(api, load_driver());
  CKPT_CUDA_TRY(*api, cuInit(0));
  int count = 0;
  CKPT_CUDA_TRY(*api, cuDeviceGetCount(&count));
  return count > 1 ? 1 : 0;
}

}  // namespace ckpt::bench
