// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/session/made_memory.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "libckpt/inprocess/memory/device_memory.h"

namespace ckpt::mover {
namespace {

constexpr std::chrono::seconds kLongestWait{30};  // time limit for another process to release freed memory

}  // namespace

class Allocation {
 public:
  Allocation(const Device& device, DeviceMemory memory, std::shared_ptr<ReclaimTracker> reclaims)
      : device_(device), memory_(std::move(memory)), reclaims_(std::move(reclaims)) {
    reclaims_->count(true);
  }
  ~Allocation() {
    {
      const ContextScope unmapping(device_);
      memory_.reset();
    }
    reclaims_->count(false);
  }
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

 private:
  const Device& device_;
  std::optional<DeviceMemory> memory_;
  std::shared_ptr<ReclaimTracker> reclaims_;
};

namespace {

Result<MadeRegion> make_region(const Gpu& gpu, const image::Extent& extent,
                               const std::shared_ptr<ReclaimTracker>& reclaims) {
  CKPT_TRY(memory, DeviceMemory::create(gpu.device.api(), gpu.device.device(), extent.bytes));
  CKPT_TRY(descriptor, memory.export_fd());
  MadeRegion made;
  made.info = messages::RegionInfo(extent.region, extent.generation, memory.bytes());
  made.region.generation = extent.generation;
  made.region.bytes = memory.bytes();
  made.region.address = memory.pointer();
  made.region.mapping = std::make_shared<const Allocation>(gpu.device, std::move(memory), reclaims);
  made.descriptor = std::move(descriptor);
  return made;
}

}  // namespace

void ReclaimTracker::count(bool allocated) {
  {
    const std::lock_guard lock(mutex_);
    allocations_ += allocated ? 1 : std::uint64_t{0} - 1;
    ++changes_;
  }
  changed_.notify_all();
}

void ReclaimTracker::made(std::uint64_t regions) {
  const std::lock_guard lock(mutex_);
  kept_ += regions;
}

void ReclaimTracker::dropped() {
  const std::lock_guard lock(mutex_);
  --kept_;
  ++dropped_;
}

void ReclaimTracker::release_elsewhere(std::uint64_t all) {
  {
    const std::lock_guard lock(mutex_);
    released_ = std::max(released_, all);
    ++changes_;
  }
  changed_.notify_all();
}

void ReclaimTracker::end() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
}

bool ReclaimTracker::wait() {
  std::unique_lock lock(mutex_);
  if (ending_ || (released_ >= dropped_ && allocations_ <= kept_)) return false;
  const std::uint64_t before = changes_;
  return changed_.wait_for(lock, kLongestWait, [&] { return changes_ != before || ending_; });
}

Result<std::vector<MadeRegion>> make_regions(const Gpu& gpu, const image::Plan& plan,
                                             const std::shared_ptr<ReclaimTracker>& reclaims) {
  const ContextScope scope(gpu.device);
  std::vector<MadeRegion> all;
  all.reserve(plan.extents.size());
  for (const image::Extent& extent : plan.extents) {
    if (extent.offset != 0)
      return Error(ErrorCode::kRefused, "Region " + std::to_string(extent.region) +
                                            " is moved only in part, and no standby has the rest of it");
    auto made = make_region(gpu, extent, reclaims);
    if (!made)
      return Error(made.error().code(), "The target has no free memory for the job's " +
                                            std::to_string(plan.state_bytes()) + " bytes of device memory")
          .caused_by(std::move(made).error());
    all.push_back(*std::move(made));
  }
  return all;
}

}  // namespace ckpt::mover
