// SPDX-License-Identifier: Apache-2.0
// Pinned host memory for the chunks of a snapshot, until they are in the checkpoint store. The memory grows
// by segments up to its limit, because the number of changed chunks is not known in advance. The memory is
// released with the snapshot.
// Threads: one at a time. Any thread may call memory() for different slots. Ownership: the Device outlives
// it. Errors: none. If no memory is left, the limit counts as reached.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "libckpt/cuda/driver.h"

namespace ckpt::mover {

class StagingArena {
 public:
  StagingArena(const Device& device, std::uint64_t chunk_bytes, std::uint64_t limit_bytes);
  ~StagingArena();
  StagingArena(const StagingArena&) = delete;
  StagingArena& operator=(const StagingArena&) = delete;

  // Returns a place for one chunk. Places from consecutive calls are mostly adjacent in memory. Returns
  // nullopt if the limit is reached.
  std::optional<std::uint32_t> allocate();
  // Allocates and touches memory for `bytes` more bytes, as far as the limit allows, so that the job need not
  // wait for the allocation.
  void reserve(std::uint64_t bytes);
  void give_back(std::uint32_t slot) { free_.push_back(slot); }
  // Frees all places.
  void clear();
  [[nodiscard]] std::byte* memory(std::uint32_t slot) const noexcept {
    return segments_[slot / slots_per_segment_] + (slot % slots_per_segment_) * chunk_bytes_;
  }
  // Checks whether the second place follows the first place in memory.
  [[nodiscard]] bool adjoin(std::uint32_t first, std::uint32_t second) const noexcept {
    return second == first + 1 && second % slots_per_segment_ != 0;
  }

 private:
  bool grow();
  const Device& device_;
  const std::uint64_t chunk_bytes_;
  const std::uint64_t slots_per_segment_;
  const std::uint64_t max_segments_;
  std::vector<std::byte*> segments_;
  std::vector<std::uint32_t> free_;
  std::uint32_t next_ = 0;  // slots from this one on have never been used
};

}  // namespace ckpt::mover
