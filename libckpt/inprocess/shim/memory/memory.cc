// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/shim/memory/memory.h"

#include <fcntl.h>

#include <mutex>
#include <string>
#include <utility>

#include "libckpt/base/program_fd.h"
#include "libckpt/inprocess/shim/memory/state.h"

namespace ckpt::shim {
namespace {

std::string named(std::uint64_t id) {
  return "region " + std::to_string(id);
}

Error unknown(std::uint64_t id) {
  return Error(ErrorCode::kNotFound, "There is no " + named(id) + "; the program has freed it");
}

Error unexportable(std::uint64_t id) {
  return Error(
      ErrorCode::kNotSupported,
      "The memory of " + named(id) +
          " cannot be exported: the driver refused to make it exportable when the program allocated it");
}

// Returns a context in which mapping calls for this region can be made: its owner's context, or that of any
// block on the same device.
CUcontext context_for(const MemoryState& state, const Region& region) {
  if (region.owner.context != nullptr) return region.owner.context;
  for (const auto& [id, other] : state.regions.by_id()) {
    if (other.owner.device == region.owner.device && other.owner.context != nullptr) {
      return other.owner.context;
    }
  }
  return nullptr;
}

Result<void> release_one(MemoryState& state, Region& region) {
  const SomeContext context(state.driver, region.owner.device, context_for(state, region));
  CUresult result = unmap_everywhere(state.driver, region);
  if (result != CUDA_SUCCESS) {
    return driver_error(state.driver, result, "Cannot unmap " + named(region.id));
  }
  result = state.driver.cuMemRelease(region.handle);
  if (result != CUDA_SUCCESS) {
    map_everywhere(state.driver, region);
    return driver_error(state.driver, result, "Cannot release " + named(region.id));
  }
  region.handle = 0;
  region.descriptor.reset();
  return ok();
}

// Maps the region's new handle, or releases the handle on failure.
Result<void> map_new_handle(MemoryState& state, Region& region) {
  const CUresult result = map_everywhere(state.driver, region);
  if (result == CUDA_SUCCESS) return ok();
  state.driver.cuMemRelease(region.handle);
  region.handle = 0;
  return driver_error(state.driver, result, "Cannot map " + named(region.id) + " at its old address");
}

}  // namespace

ShimMemory::ShimMemory() : state_(std::make_unique<MemoryState>(real())) {}

ShimMemory::~ShimMemory() = default;

std::vector<RegionInfo> ShimMemory::regions() const {
  std::vector<RegionInfo> all;
  const std::shared_lock lock(state_->mutex);
  all.reserve(state_->regions.by_id().size());
  for (const auto& [id, region] : state_->regions.by_id()) all.push_back(info_of(region));
  return all;
}

void ShimMemory::on_change(RegionListener listener) {
  state_->listen(std::move(listener));
}

void ShimMemory::trim() {
  drop_spares(*state_);
}

Result<UniqueFd> ShimMemory::export_region(std::uint64_t id) const {
  const std::shared_lock lock(state_->mutex);
  const Region* region = state_->regions.find(id);
  if (region == nullptr) return unknown(id);
  if (!region->exportable) return unexportable(id);
  if (region->handle == 0) {
    return Error(ErrorCode::kInvalidArgument,
                 "The memory of " + named(id) + " is released, so it cannot be exported");
  }
  if (region->descriptor) return copy_beyond_program(region->descriptor->get());
  return export_physical(state_->driver, region->handle);
}

Result<void> ShimMemory::release_all() {
  const std::unique_lock lock(state_->mutex);
  for (const auto& [id, region] : state_->regions.by_id()) {
    if (!region.exportable) return unexportable(id);
  }
  for (auto& [id, region] : state_->regions.by_id()) {
    if (region.handle == 0) continue;
    CKPT_TRYV(release_one(*state_, region));
  }
  return ok();
}

Result<void> ShimMemory::map_region(std::uint64_t id, int fd) {
  const std::unique_lock lock(state_->mutex);
  Region* region = state_->regions.find(id);
  if (region == nullptr) return unknown(id);
  if (region->handle != 0) return ok();
  CKPT_TRY(descriptor, copy_beyond_program(fd));
  const SomeContext context(state_->driver, region->owner.device, context_for(*state_, *region));
  void* const os_handle = reinterpret_cast<void*>(static_cast<std::intptr_t>(fd));
  const CUresult result = state_->driver.cuMemImportFromShareableHandle(
      &region->handle, os_handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (result != CUDA_SUCCESS) {
    region->handle = 0;
    return driver_error(state_->driver, result, "Cannot import the memory of " + named(id));
  }
  CKPT_TRYV(map_new_handle(*state_, *region));
  region->descriptor = std::make_shared<const UniqueFd>(std::move(descriptor));
  return ok();
}

Result<UniqueFd> ShimMemory::make_region(std::uint64_t id) {
  const std::unique_lock lock(state_->mutex);
  Region* region = state_->regions.find(id);
  if (region == nullptr) return unknown(id);
  if (region->handle != 0) {
    return Error(ErrorCode::kInvalidArgument, "The memory of " + named(id) + " is mapped: release it first");
  }
  const SomeContext context(state_->driver, region->owner.device, context_for(*state_, *region));
  const CUresult result = create_physical(state_->driver, *region);
  if (result != CUDA_SUCCESS) {
    region->handle = 0;
    return driver_error(state_->driver, result, "Cannot allocate new memory for " + named(id));
  }
  CKPT_TRYV(map_new_handle(*state_, *region));
  Result<UniqueFd> fd = export_physical(state_->driver, region->handle);
  if (fd.has_value()) return fd;
  CKPT_TRYV(release_one(*state_, *region));
  return fd;
}

bool ShimMemory::whole() const {
  const std::shared_lock lock(state_->mutex);
  for (const auto& [id, region] : state_->regions.by_id()) {
    if (region.handle == 0) return false;
  }
  return true;
}

ShimMemory& shim_memory() noexcept {
  // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): without these few bytes the program could not go on either
  static ShimMemory* const memory = new ShimMemory;
  return *memory;
}

}  // namespace ckpt::shim
