// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/region_filler.h"

#include "libckpt/base/random.h"
#include "libckpt/inprocess/memory/device_memory.h"

namespace ckpt::mover {
namespace {

constexpr std::uint64_t kChunkBytes = std::uint64_t{1} << 20;

}  // namespace

Result<std::unique_ptr<RegionFiller>> RegionFiller::create(const Device& device, CopiedHook copied) {
  std::unique_ptr<RegionFiller> filler(new RegionFiller(device, std::move(copied)));
  track::FingerprintKey key{};
  CKPT_TRYV(fill_random(key));
  CKPT_TRY(kernels, track::TrackKernels::create(
                        device, track::FingerprintParams::expand(key, track::FingerprintPurpose::kChunks)));
  CKPT_TRY(scanner, track::Scanner::create(kernels, track::ScannerOptions{}));
  filler->scanner_ = std::move(scanner);
  const ContextScope scope(device);
  CKPT_CUDA_TRY(device.api(), cuStreamCreate(&filler->stream_, CU_STREAM_NON_BLOCKING));
  return filler;
}

RegionFiller::~RegionFiller() {
  if (stream_ == nullptr) return;
  const ContextScope scope(device_);
  device_.api().cuStreamDestroy_v2(stream_);
}

Result<std::uint64_t> RegionFiller::fill(const std::vector<wire::mover::RegionInfo>& regions,
                                         std::vector<UniqueFd> descriptors) {
  if (descriptors.size() != 2 * regions.size())
    return Error(ErrorCode::kInvalidArgument, "Memory to be filled needs two descriptors for each region");
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < regions.size(); ++i) {
    CKPT_TRYV(fill_one(regions[i], descriptors[2 * i].get(), descriptors[2 * i + 1].get()));
    bytes += regions[i].bytes;
  }
  return bytes;
}

Result<void> RegionFiller::fill_one(const wire::mover::RegionInfo& region, int source, int target) {
  if (region.id == 0 || region.bytes == 0)
    return Error(ErrorCode::kInvalidArgument, "A region has no id or no size");
  const ContextScope scope(device_);
  CKPT_TRY(from, ImportedMemory::import(device_.api(), device_.device(), source, region.bytes));
  CKPT_TRY(to, ImportedMemory::import(device_.api(), device_.device(), target, region.bytes));
  CKPT_CUDA_TRY(device_.api(), cuMemcpyDtoDAsync_v2(to.pointer(), from.pointer(), region.bytes, stream_));
  CKPT_CUDA_TRY(device_.api(), cuStreamSynchronize(stream_));
  if (copied_) copied_(to.pointer(), region.bytes);
  return compare(region.id, from.pointer(), to.pointer(), region.bytes);
}

Result<void> RegionFiller::compare(std::uint64_t region, CUdeviceptr source, CUdeviceptr target,
                                   std::uint64_t bytes) {
  ranges_.clear();
  track::append_chunks(source, bytes, kChunkBytes, ranges_);
  const std::size_t chunks = ranges_.size();
  track::append_chunks(target, bytes, kChunkBytes, ranges_);
  fingerprints_.resize(ranges_.size());
  CKPT_TRYV(scanner_->scan(ranges_, fingerprints_));
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    if (fingerprints_[chunk] == fingerprints_[chunks + chunk]) continue;
    return Error(ErrorCode::kCorrupt, "Region " + std::to_string(region) +
                                          " differs from its source at byte " +
                                          std::to_string(chunk * kChunkBytes));
  }
  return ok();
}

}  // namespace ckpt::mover
