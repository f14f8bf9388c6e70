// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/made_memory.h"

#include <utility>

#include "libckpt/memory/device_memory.h"

namespace ckpt::mover {
namespace {

Result<MadeRegion> make_region(const Gpu& gpu, const image::Extent& extent) {
  CKPT_TRY(memory, DeviceMemory::create(gpu.device.api(), gpu.device.device(), extent.bytes));
  CKPT_TRY(descriptor, memory.export_fd());
  MadeRegion made;
  made.info = messages::RegionInfo(extent.region, extent.generation, memory.bytes());
  made.region.generation = extent.generation;
  made.region.bytes = memory.bytes();
  made.region.address = memory.pointer();
  made.region.mapping = std::shared_ptr<const DeviceMemory>(new DeviceMemory(std::move(memory)),
                                                            [&device = gpu.device](const DeviceMemory* held) {
                                                              const ContextScope unmapping(device);
                                                              delete held;
                                                            });
  made.descriptor = std::move(descriptor);
  return made;
}

}  // namespace

Result<std::vector<MadeRegion>> make_regions(const Gpu& gpu, const image::Plan& plan) {
  const ContextScope scope(gpu.device);
  std::vector<MadeRegion> all;
  all.reserve(plan.extents.size());
  for (const image::Extent& extent : plan.extents) {
    if (extent.offset != 0)
      return Error(ErrorCode::kRefused, "Region " + std::to_string(extent.region) +
                                            " is not moved whole, and there is no standby that has the rest");
    auto made = make_region(gpu, extent);
    if (!made)
      return Error(made.assume_error().code(), "The target has no room for the job's " +
                                                   std::to_string(plan.state_bytes()) +
                                                   " bytes of device memory")
          .caused_by(std::move(made).assume_error());
    all.push_back(std::move(made).assume_value());
  }
  return all;
}

}  // namespace ckpt::mover
