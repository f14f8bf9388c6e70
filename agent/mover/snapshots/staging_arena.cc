// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/snapshots/staging_arena.h"

#include <algorithm>

#include "libckpt/net/control/log.h"

namespace ckpt::mover {
namespace {

constexpr std::uint64_t kSegmentBytes = std::uint64_t{16} << 20;
constexpr std::uint64_t kPageBytes = 4096;

}  // namespace

StagingArena::StagingArena(const Device& device, std::uint64_t chunk_bytes, std::uint64_t limit_bytes)
    : device_(device),
      chunk_bytes_(chunk_bytes),
      slots_per_segment_(std::max<std::uint64_t>(kSegmentBytes / chunk_bytes, 1)),
      max_segments_(std::max<std::uint64_t>(limit_bytes / kSegmentBytes, 1)) {}

StagingArena::~StagingArena() {
  const ContextScope scope(device_);
  for (std::byte* segment : segments_) device_.api().cuMemFreeHost(segment);
}

std::optional<std::uint32_t> StagingArena::allocate() {
  if (!free_.empty()) {
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  if (next_ == segments_.size() * slots_per_segment_ && !grow()) return std::nullopt;
  return next_++;
}

bool StagingArena::grow() {
  if (segments_.size() >= max_segments_) return false;
  const ContextScope scope(device_);
  void* memory = nullptr;
  if (device_.api().cuMemHostAlloc(&memory, slots_per_segment_ * chunk_bytes_, 0) != CUDA_SUCCESS) {
    spdlog::warn("staging memory is limited to {} bytes: the driver provides no more",
                 segments_.size() * slots_per_segment_ * chunk_bytes_);
    return false;
  }
  segments_.push_back(static_cast<std::byte*>(memory));
  return true;
}

void StagingArena::reserve(std::uint64_t bytes) {
  const std::uint64_t wanted = free_.size() < bytes / chunk_bytes_ ? bytes / chunk_bytes_ - free_.size() : 0;
  while (segments_.size() * slots_per_segment_ - next_ < wanted && grow()) {
    std::byte* const segment = segments_.back();
    for (std::uint64_t at = 0; at < slots_per_segment_ * chunk_bytes_; at += kPageBytes)
      segment[at] = std::byte{0};
  }
}

void StagingArena::clear() {
  free_.clear();
  next_ = 0;
}

}  // namespace ckpt::mover
