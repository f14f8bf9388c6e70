// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/staging_arena.h"

#include <spdlog/spdlog.h>

#include <algorithm>

namespace ckpt::mover {
namespace {

constexpr std::uint64_t kSegmentBytes = std::uint64_t{16} << 20;

}  // namespace

StagingArena::StagingArena(const Device& device, std::uint64_t chunk_bytes, std::uint64_t limit_bytes)
    : device_(device),
      chunk_bytes_(chunk_bytes),
      slots_per_segment_(std::max<std::uint64_t>(kSegmentBytes / chunk_bytes, 1)),
      most_segments_(std::max<std::uint64_t>(limit_bytes / kSegmentBytes, 1)) {}

StagingArena::~StagingArena() {
  const ContextScope scope(device_);
  for (std::byte* segment : segments_) device_.api().cuMemFreeHost(segment);
}

std::optional<std::uint32_t> StagingArena::take() {
  if (!free_.empty()) {
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  if (next_ == segments_.size() * slots_per_segment_) {
    if (segments_.size() >= most_segments_) return std::nullopt;
    const ContextScope scope(device_);
    void* memory = nullptr;
    if (device_.api().cuMemHostAlloc(&memory, slots_per_segment_ * chunk_bytes_, 0) != CUDA_SUCCESS) {
      spdlog::warn("staging memory ends at {} bytes: the driver has no more",
                   segments_.size() * slots_per_segment_ * chunk_bytes_);
      return std::nullopt;
    }
    segments_.push_back(static_cast<std::byte*>(memory));
  }
  return next_++;
}

void StagingArena::clear() {
  free_.clear();
  next_ = 0;
}

}  // namespace ckpt::mover
