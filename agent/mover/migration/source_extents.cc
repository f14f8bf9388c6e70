// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/migration/source_extents.h"

#include <algorithm>

namespace ckpt::mover {

void SourceExtents::name(const std::vector<wire::TensorInfo>& tensors) {
  new_tensors_.insert(new_tensors_.end(), tensors.begin(), tensors.end());
}

Result<std::optional<image::Plan>> SourceExtents::next_plan(const Regions& regions, std::uint64_t chunk_bytes,
                                                            bool at_last,
                                                            std::vector<wire::TensorInfo>& tensors) {
  const auto waiting =
      std::stable_partition(new_tensors_.begin(), new_tensors_.end(), [&](const wire::TensorInfo& tensor) {
        return at_last || tensor.region == wire::kNoRegion || regions.contains(tensor.region);
      });
  const std::vector<wire::TensorInfo> ready(new_tensors_.begin(), waiting);
  if (ready.empty() && tensors_sent_ > 0) return std::optional<image::Plan>();
  CKPT_TRY(plan, image::build_plan(ready, chunk_bytes, 1, next_extent_));
  next_extent_ += plan.extents.size();
  tensors.insert(tensors.end(), ready.begin(), ready.end());
  tensors_sent_ += std::max<std::size_t>(ready.size(), 1);
  new_tensors_.erase(new_tensors_.begin(), waiting);
  return std::optional(std::move(plan));
}

// Adds the regions of a plan. The caller holds the lock. Therefore a region that was freed is either already
// missing, or is dropped after it was added.
Result<void> SourceExtents::add(const image::Plan& plan, const Regions& regions, engine::Sender& sender) {
  for (const image::Extent& extent : plan.extents) {
    const auto it = regions.find(extent.region);
    if (it == regions.end()) {
      sender.forgo_region(extent.id, extent.generation);
      continue;
    }
    const AttachedRegion& region = it->second;
    const std::string& tensor = plan.tensors[extent.tensor].name;
    if (extent.offset > region.bytes || extent.bytes > region.bytes - extent.offset)
      return Error(ErrorCode::kInvalidArgument, "Tensor \"" + tensor + "\" lies outside its allocation");
    CKPT_TRYV(sender.add_region(
        {extent.id, extent.generation, region.address + extent.offset, extent.bytes, region.mapping}));
    live_[extent.id] = {extent, tensor};
  }
  return ok();
}

std::vector<std::uint64_t> SourceExtents::drop_tensors(const std::vector<std::string>& names,
                                                       const std::vector<wire::TensorInfo>& tensors) {
  std::erase_if(new_tensors_, [&](const wire::TensorInfo& tensor) {
    return std::find(names.begin(), names.end(), tensor.name) != names.end();
  });
  return erase([&](const image::Extent& extent) {
    return std::none_of(tensors.begin(), tensors.end(), [&](const wire::TensorInfo& tensor) {
      return tensor.region == extent.region && tensor.offset < extent.offset + extent.bytes &&
             tensor.offset + tensor.bytes > extent.offset;
    });
  });
}

std::vector<std::uint64_t> SourceExtents::drop_region(std::uint64_t region) {
  std::erase_if(new_tensors_, [region](const wire::TensorInfo& tensor) { return tensor.region == region; });
  return erase([region](const image::Extent& extent) { return extent.region == region; });
}

template <class Gone>
std::vector<std::uint64_t> SourceExtents::erase(Gone gone) {
  std::vector<std::uint64_t> erased;
  for (const auto& [id, live] : live_)
    if (gone(live.extent)) erased.push_back(id);
  for (const std::uint64_t id : erased) live_.erase(id);
  return erased;
}

std::string SourceExtents::tensor_of(std::uint64_t extent) const {
  const auto it = live_.find(extent);
  return it == live_.end() ? std::string() : it->second.tensor;
}

std::vector<track::ChunkRange> SourceExtents::ranges(const Regions& regions) const {
  std::vector<track::ChunkRange> ranges;
  for (const auto& [id, live] : live_) {
    const auto it = regions.find(live.extent.region);
    if (it != regions.end()) ranges.push_back({it->second.address + live.extent.offset, live.extent.bytes});
  }
  return ranges;
}

std::vector<image::ManifestExtent> SourceExtents::in_manifest() const {
  std::vector<image::ManifestExtent> extents;
  for (const auto& [id, live] : live_) {
    image::ManifestExtent& extent = extents.emplace_back();
    extent.id = id;
    extent.generation = live.extent.generation;
    extent.bytes = live.extent.bytes;
  }
  return extents;
}

}  // namespace ckpt::mover
