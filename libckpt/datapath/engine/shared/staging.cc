// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/engine/shared/staging.h"

#include <utility>

namespace ckpt::engine {

StagingSlot::StagingSlot(StagingSlot&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), memory_(std::exchange(other.memory_, nullptr)) {}

StagingSlot::~StagingSlot() {
  if (pool_ == nullptr) return;
  const std::lock_guard lock(pool_->mutex_);
  pool_->free_.push_back(memory_);
}

Result<std::unique_ptr<StagingPool>> StagingPool::create(const Device& device, std::size_t bytes) {
  const std::size_t slots = bytes / kSlotBytes;
  if (slots == 0)
    return Error(ErrorCode::kInvalidArgument, "Staging memory of " + std::to_string(bytes) +
                                                  " bytes is too small: at least " +
                                                  std::to_string(kSlotBytes) + " bytes are needed");
  CKPT_TRY(memory, PinnedMemory::create(device, slots * kSlotBytes));
  return std::unique_ptr<StagingPool>(new StagingPool(std::move(memory)));
}

StagingPool::StagingPool(PinnedMemory memory) : memory_(std::move(memory)) {
  const std::size_t slots = memory_.bytes().size() / kSlotBytes;
  free_.reserve(slots);
  for (std::size_t i = 0; i < slots; ++i) free_.push_back(memory_.bytes().data() + i * kSlotBytes);
}

Result<std::vector<StagingSlot>> StagingPool::acquire(std::size_t slots) {
  const std::lock_guard lock(mutex_);
  if (free_.size() < slots)
    return Error(ErrorCode::kOutOfMemory,
                 "The mover has too little free staging memory: the migration needs " +
                     std::to_string(slots) + " slots, and " + std::to_string(free_.size()) +
                     " are free. Wait until another migration on this GPU has ended");
  std::vector<StagingSlot> lent;
  lent.reserve(slots);
  for (; slots > 0; --slots) {
    lent.emplace_back(this, free_.back());
    free_.pop_back();
  }
  return lent;
}

std::size_t StagingPool::free_slots() const {
  const std::lock_guard lock(mutex_);
  return free_.size();
}

}  // namespace ckpt::engine
