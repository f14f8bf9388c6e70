// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "libckpt/datapath/track/kernels.h"
#include "libckpt/datapath/track/scanner.h"

namespace ckpt::track {
namespace {

static_assert(sizeof(ChunkRange) == sizeof(DeviceChunk) && sizeof(CopyRange) == sizeof(DeviceCopy),
              "lists are uploaded without conversion");

bool is_aligned(CUdeviceptr address) {
  return address % 16 == 0;
}

Result<void> check_chunks(std::span<const ChunkRange> chunks) {
  for (const ChunkRange& chunk : chunks) {
    if (chunk.bytes == 0 || chunk.bytes > kMaxChunkBytes || !is_aligned(chunk.address))
      return Error(ErrorCode::kInvalidArgument, "A chunk of " + std::to_string(chunk.bytes) +
                                                    " bytes is empty, longer than " +
                                                    std::to_string(kMaxChunkBytes) + " or not aligned");
  }
  return ok();
}

Result<void> check_list(std::size_t count, std::uint32_t capacity, bool busy) {
  if (count > capacity)
    return Error(ErrorCode::kInvalidArgument, "A list of " + std::to_string(count) +
                                                  " entries is longer than " + std::to_string(capacity));
  if (busy) return Error(ErrorCode::kRefused, "The list's previous launch has not been waited for");
  return ok();
}

}  // namespace

void append_chunks(CUdeviceptr address, std::uint64_t bytes, std::uint64_t chunk_bytes,
                   std::vector<ChunkRange>& out) {
  for (std::uint64_t offset = 0; offset < bytes; offset += chunk_bytes)
    out.push_back({address + offset, std::min(chunk_bytes, bytes - offset)});
}

Result<std::shared_ptr<const TrackKernels>> TrackKernels::create(
    const Device& device, std::shared_ptr<const FingerprintParams> params) {
  const DriverApi& api = device.api();
  ContextScope scope(device);
  CKPT_TRY(module, Module::load(api, "ckpt_kernels"));
  std::shared_ptr<TrackKernels> kernels(new TrackKernels(device, std::move(params), std::move(module)));
  CKPT_TRY(fingerprint, kernels->module_.function("ckpt_fingerprint"));
  CKPT_TRY(read, kernels->module_.function("ckpt_read"));
  CKPT_TRY(copy, kernels->module_.function("ckpt_copy"));
  int processors = 0;
  CKPT_CUDA_TRY(api,
                cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device.device()));
  kernels->max_blocks_ = static_cast<std::uint32_t>(std::max(processors, 1)) * kFingerprintBlocksPerProcessor;
  kernels->fingerprint_ = fingerprint;
  kernels->read_ = read;
  kernels->copy_ = copy;
  CKPT_CUDA_TRY(api, cuMemAlloc_v2(&kernels->tables_, sizeof(FingerprintTables)));
  CKPT_CUDA_TRY(api,
                cuMemcpyHtoD_v2(kernels->tables_, &kernels->params_->tables(), sizeof(FingerprintTables)));
  return std::shared_ptr<const TrackKernels>(std::move(kernels));
}

TrackKernels::~TrackKernels() {
  ContextScope scope(device_);
  // The key must not remain in memory that another process may get.
  if (tables_ != 0 && device_.api().cuMemsetD8_v2(tables_, 0, sizeof(FingerprintTables)) == CUDA_SUCCESS)
    device_.api().cuMemFree_v2(tables_);
  const Module unloaded_in_context(std::move(module_));
}

Result<void> TrackKernels::launch_fingerprint(CUstream stream, CUdeviceptr chunk_list, CUdeviceptr results,
                                              std::uint32_t count) const {
  const DriverApi& api = device_.api();
  CUdeviceptr tables = tables_;
  void* arguments[] = {&tables, &chunk_list, &results, &count};
  CKPT_CUDA_TRY(api, cuLaunchKernel(fingerprint_, std::min(count, max_blocks_), 1, 1, kFingerprintThreads, 1,
                                    1, 0, stream, arguments, nullptr));
  return ok();
}

Result<void> TrackKernels::launch_read(CUstream stream, CUdeviceptr chunk_list, CUdeviceptr results,
                                       std::uint32_t count) const {
  const DriverApi& api = device_.api();
  void* arguments[] = {&chunk_list, &results};
  CKPT_CUDA_TRY(api, cuLaunchKernel(read_, count, 1, 1, kReadThreads, 1, 1, 0, stream, arguments, nullptr));
  return ok();
}

Result<void> TrackKernels::launch_copy(CUstream stream, CUdeviceptr copy_list, std::uint32_t count) const {
  const DriverApi& api = device_.api();
  void* arguments[] = {&copy_list};
  CKPT_CUDA_TRY(
      api, cuLaunchKernel(copy_, count, kCopyParts, 1, kCopyThreads, 1, 1, 0, stream, arguments, nullptr));
  return ok();
}

Result<std::unique_ptr<FingerprintBatch>> FingerprintBatch::create(
    std::shared_ptr<const TrackKernels> kernels, std::uint32_t capacity) {
  CKPT_TRY(list,
           DeviceList::create(kernels->device(), capacity * (sizeof(ChunkRange) + sizeof(Fingerprint))));
  return std::unique_ptr<FingerprintBatch>(
      new FingerprintBatch(std::move(kernels), capacity, std::move(list)));
}

Result<void> FingerprintBatch::launch(CUstream stream, std::span<const ChunkRange> chunks,
                                      const FingerprintBatch* after) {
  CKPT_TRYV(check_list(chunks.size(), capacity_, busy()));
  CKPT_TRYV(check_chunks(chunks));
  count_ = static_cast<std::uint32_t>(chunks.size());
  if (chunks.empty()) return ok();
  ContextScope scope(kernels_->device());
  const std::size_t results_at = capacity_ * sizeof(ChunkRange);
  std::memcpy(list_.host(), chunks.data(), chunks.size_bytes());
  CKPT_TRYV(list_.upload(stream, 0, chunks.size_bytes()));
  if (after != nullptr && after->busy()) {
    CKPT_TRYV(after->list_.stream_wait(stream));
  }
  CKPT_TRYV(kernels_->launch_fingerprint(stream, list_.device_address(), list_.device_address() + results_at,
                                         count_));
  CKPT_TRYV(list_.download(stream, results_at, count_ * sizeof(Fingerprint)));
  return list_.mark(stream);
}

std::span<const Fingerprint> FingerprintBatch::results() const noexcept {
  const std::byte* results = list_.host() + capacity_ * sizeof(ChunkRange);
  return {reinterpret_cast<const Fingerprint*>(results), count_};
}

Result<std::unique_ptr<CopyList>> CopyList::create(std::shared_ptr<const TrackKernels> kernels,
                                                   std::uint32_t capacity) {
  CKPT_TRY(list, DeviceList::create(kernels->device(), capacity * sizeof(CopyRange)));
  return std::unique_ptr<CopyList>(new CopyList(std::move(kernels), capacity, std::move(list)));
}

Result<void> CopyList::launch(CUstream stream, std::span<const CopyRange> copies) {
  CKPT_TRYV(check_list(copies.size(), capacity_, busy()));
  for (const CopyRange& copy : copies) {
    if (copy.target == 0 || !is_aligned(copy.target) || !is_aligned(copy.source))
      return Error(ErrorCode::kInvalidArgument, "A copy's address is null or not aligned");
  }
  if (copies.empty()) return ok();
  ContextScope scope(kernels_->device());
  std::memcpy(list_.host(), copies.data(), copies.size_bytes());
  CKPT_TRYV(list_.upload(stream, 0, copies.size_bytes()));
  CKPT_TRYV(kernels_->launch_copy(stream, list_.device_address(), static_cast<std::uint32_t>(copies.size())));
  return list_.mark(stream);
}

}  // namespace ckpt::track
