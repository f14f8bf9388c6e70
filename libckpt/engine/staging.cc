// SPDX-License-Identifier: Apache-2.0
#include "libckpt/engine/staging.h"

#include <cstring>
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
                                                  " bytes: at least " + std::to_string(kSlotBytes) +
                                                  " are needed");
  const ContextScope scope(device);
  void* memory = nullptr;
  CKPT_CUDA_TRY(device.api(), cuMemHostAlloc(&memory, slots * kSlotBytes, 0));
  // Pinned memory is there, on pages whose size the driver chooses; this process's page tables may not be.
  std::memset(memory, 0, slots * kSlotBytes);
  return std::unique_ptr<StagingPool>(new StagingPool(device, memory, slots));
}

StagingPool::StagingPool(const Device& device, void* memory, std::size_t slots)
    : device_(device), memory_(memory) {
  free_.reserve(slots);
  for (std::size_t i = 0; i < slots; ++i) free_.push_back(static_cast<std::byte*>(memory) + i * kSlotBytes);
}

StagingPool::~StagingPool() {
  const ContextScope scope(device_);
  device_.api().cuMemFreeHost(memory_);
}

Result<std::vector<StagingSlot>> StagingPool::acquire(std::size_t slots) {
  const std::lock_guard lock(mutex_);
  if (free_.size() < slots)
    return Error(ErrorCode::kOutOfMemory, "No free staging memory in the mover: " + std::to_string(slots) +
                                              " slots wanted, " + std::to_string(free_.size()) +
                                              " left. Wait for a migration on this GPU to end");
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
