// SPDX-License-Identifier: Apache-2.0
// The mover's pinned memory, made once (a full or faulty GPU provides none later) and lent out in slots. It
// is in a file if the driver can pin file memory (pinned_memory.h). A target on this machine then copies
// from that file directly to its device.
// Threads: any. Ownership: a pool outlives its slots, a slot returns itself, and the Device outlives the
// pool. Errors: the driver's; kOutOfMemory when the pool has too few free slots.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/cuda/driver.h"
#include "libckpt/datapath/engine/shared/pinned_memory.h"

namespace ckpt::engine {

inline constexpr std::size_t kSlotBytes = std::size_t{2} << 20;
inline constexpr std::uint32_t kDefaultWindow = 4;  // the number of slots of a lane

class StagingPool;

class StagingSlot {
 public:
  StagingSlot(StagingPool* pool, std::byte* memory) : pool_(pool), memory_(memory) {}
  StagingSlot(StagingSlot&& other) noexcept;
  StagingSlot& operator=(StagingSlot&&) = delete;
  ~StagingSlot();
  [[nodiscard]] std::span<std::byte> memory() const noexcept { return {memory_, kSlotBytes}; }
  [[nodiscard]] const StagingPool& pool() const noexcept { return *pool_; }

 private:
  StagingPool* pool_;
  std::byte* memory_;
};

class StagingPool {
 public:
  static Result<std::unique_ptr<StagingPool>> create(const Device& device, std::size_t bytes);
  ~StagingPool() = default;
  StagingPool(const StagingPool&) = delete;
  StagingPool& operator=(const StagingPool&) = delete;

  Result<std::vector<StagingSlot>> acquire(std::size_t slots);
  [[nodiscard]] std::size_t free_slots() const;  // the current number of free slots, which may change
                                                 // immediately
  [[nodiscard]] const PinnedMemory& memory() const noexcept { return memory_; }

 private:
  friend class StagingSlot;
  explicit StagingPool(PinnedMemory memory);
  const PinnedMemory memory_;
  mutable std::mutex mutex_;  // guards free_
  std::vector<std::byte*> free_;
};

}  // namespace ckpt::engine
