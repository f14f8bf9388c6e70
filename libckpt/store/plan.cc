// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>

#include <ckpt/ckpt.h>

namespace ckpt::image {
namespace {

using wire::TensorInfo;

constexpr std::uint64_t kAlignment = 16;  // of the device's fingerprint kernel

bool is_copied(const TensorInfo& tensor) {
  return tensor.kind != CKPT_SCRATCH && tensor.region != wire::kNoRegion;
}

std::string quoted(const TensorInfo& tensor) {
  return "Tensor \"" + tensor.name + "\"";
}

// A tensor comes before those inside it.
bool lies_before(const TensorInfo& a, const TensorInfo& b) {
  return std::tuple(a.region, a.offset, ~a.bytes, std::string_view(a.name)) <
         std::tuple(b.region, b.offset, ~b.bytes, std::string_view(b.name));
}

bool contains(const Extent& extent, const TensorInfo& tensor) {
  return tensor.region == extent.region && tensor.offset >= extent.offset &&
         tensor.offset + tensor.bytes <= extent.offset + extent.bytes;
}

Result<void> check_names(std::span<const TensorInfo> tensors) {
  std::set<std::string_view> names;
  for (const TensorInfo& tensor : tensors) {
    CKPT_TRYV(wire::check_tensor(tensor));
    if (!names.insert(tensor.name).second)
      return Error(ErrorCode::kProtocol, quoted(tensor) + " is named twice");
  }
  return ok();
}

}  // namespace

std::uint64_t Plan::state_bytes() const {
  std::uint64_t bytes = 0;
  for (const Extent& extent : extents) bytes += extent.bytes;
  return bytes;
}

Result<Plan> build_plan(std::span<const TensorInfo> tensors, std::uint64_t chunk_bytes,
                        std::uint64_t generation, std::uint64_t first_extent) {
  CKPT_TRYV(check_names(tensors));
  Plan plan;
  plan.chunk_bytes = chunk_bytes;
  plan.tensors.assign(tensors.begin(), tensors.end());
  std::sort(plan.tensors.begin(), plan.tensors.end(), lies_before);
  for (std::uint32_t i = 0; i < plan.tensors.size(); ++i) {
    const TensorInfo& tensor = plan.tensors[i];
    if (!is_copied(tensor)) continue;
    if (!plan.extents.empty()) {
      const Extent& last = plan.extents.back();
      if (contains(last, tensor)) continue;
      if (tensor.region == last.region && tensor.offset < last.offset + last.bytes)
        return Error(ErrorCode::kRefused, quoted(tensor) + " overlaps tensor \"" +
                                              plan.tensors[last.tensor].name +
                                              "\" partly: name disjoint tensors, or one inside the other");
    }
    if (tensor.offset % kAlignment != 0)
      return Error(ErrorCode::kRefused, quoted(tensor) + " starts " +
                                            std::to_string(tensor.offset % kAlignment) +
                                            " bytes beside a multiple of 16: align it in its allocation");
    Extent extent;
    extent.id = first_extent++;
    extent.generation = generation;
    extent.region = tensor.region;
    extent.offset = tensor.offset;
    extent.bytes = tensor.bytes;
    extent.tensor = i;
    plan.extents.push_back(extent);
  }
  return plan;
}

Result<Plan> decode_plan(std::span<const std::byte> bytes) {
  CKPT_TRY(plan, wire::decode<Plan>(bytes));
  if (plan.format != kFormatVersion)
    return Error(ErrorCode::kNotSupported, "Plan format " + std::to_string(plan.format) +
                                               "; this build reads " + std::to_string(kFormatVersion));
  if (plan.tensors.size() > kMaxTensors) return Error(ErrorCode::kProtocol, "A plan with too many tensors");
  CKPT_TRYV(check_names(plan.tensors));
  // Extents are what build_plan makes of the tensors, so everything about them can be checked by making them
  // again.
  const std::uint64_t first = plan.extents.empty() ? 1 : plan.extents.front().id;
  const std::uint64_t generation = plan.extents.empty() ? 1 : plan.extents.front().generation;
  if (first == 0 || generation == 0)
    return Error(ErrorCode::kProtocol, "A plan with an extent or generation 0");
  CKPT_TRY(again, build_plan(plan.tensors, plan.chunk_bytes, generation, first));
  const auto key = [](const Extent& e) {
    return std::tuple(e.id, e.generation, e.region, e.offset, e.bytes, e.tensor);
  };
  if (!std::equal(plan.extents.begin(), plan.extents.end(), again.extents.begin(), again.extents.end(),
                  [&](const Extent& a, const Extent& b) { return key(a) == key(b); }))
    return Error(ErrorCode::kProtocol, "A plan whose extents do not follow from its tensors");
  for (std::size_t i = 0; i < plan.tensors.size(); ++i)
    if (plan.tensors[i].name != again.tensors[i].name)
      return Error(ErrorCode::kProtocol, "A plan whose tensors are not in order");
  return plan;
}

namespace {

// The standby's tensor for this one of the source, or why there is none.
Result<const TensorInfo*> find_match(const TensorInfo& tensor,
                                     const std::unordered_map<std::string_view, const TensorInfo*>& standby) {
  const auto it = standby.find(tensor.name);
  if (it == standby.end())
    return Error(ErrorCode::kRefused, quoted(tensor) + " " + wire::describe_tensor(tensor) +
                                          " does not exist at the target: the standby has not named it");
  const TensorInfo& match = *it->second;
  if (match.dtype != tensor.dtype || match.shape != tensor.shape)
    return Error(ErrorCode::kRefused, quoted(tensor) + " is " + wire::describe_tensor(tensor) +
                                          " at the source but " + wire::describe_tensor(match) +
                                          " at the target");
  if ((match.kind == CKPT_SCRATCH) != (tensor.kind == CKPT_SCRATCH))
    return Error(ErrorCode::kRefused, quoted(tensor) + " is scratch on one side only");
  if ((match.region == wire::kNoRegion) != (tensor.region == wire::kNoRegion))
    return Error(ErrorCode::kRefused, quoted(tensor) +
                                          " lies in memory that can be exported on one side only: "
                                          "allocate it with ckpt_alloc on both");
  return it->second;
}

// No two extents may be written to the same memory: then the standby shares what the source does not.
Result<void> check_disjoint(std::vector<std::pair<Place, const TensorInfo*>> places) {
  std::sort(places.begin(), places.end(), [](const auto& a, const auto& b) {
    return std::tuple(a.first.region, a.first.offset) < std::tuple(b.first.region, b.first.offset);
  });
  for (std::size_t i = 1; i < places.size(); ++i) {
    const Place& before = places[i - 1].first;
    if (places[i].first.region == before.region && places[i].first.offset < before.offset + before.bytes)
      return Error(ErrorCode::kRefused, quoted(*places[i].second) + " shares memory with \"" +
                                            places[i - 1].second->name +
                                            "\" at the target but not at the source");
  }
  return ok();
}

}  // namespace

Result<std::vector<Place>> match_plan(const Plan& plan, std::span<const TensorInfo> standby, bool complete) {
  CKPT_TRYV(check_names(standby));
  std::unordered_map<std::string_view, const TensorInfo*> by_name;
  for (const TensorInfo& tensor : standby) by_name.emplace(tensor.name, &tensor);
  std::vector<std::pair<Place, const TensorInfo*>> places;
  const Extent* extent = nullptr;
  std::size_t next_extent = 0;
  for (std::uint32_t i = 0; i < plan.tensors.size(); ++i) {
    const TensorInfo& tensor = plan.tensors[i];
    CKPT_TRY(match, find_match(tensor, by_name));
    if (!is_copied(tensor)) continue;
    if (match->offset % kAlignment != 0)
      return Error(ErrorCode::kRefused, quoted(tensor) + " is not aligned to 16 bytes at the target");
    if (next_extent < plan.extents.size() && plan.extents[next_extent].tensor == i) {
      extent = &plan.extents[next_extent++];
      Place place;
      place.extent = extent->id;
      place.generation = extent->generation;
      place.bytes = extent->bytes;
      place.region = match->region;
      place.offset = match->offset;
      places.emplace_back(place, match);
      continue;
    }
    // Inside the present extent: it must be at the same distance from its start at the target.
    const Place& place = places.back().first;
    if (match->region != place.region || match->offset - place.offset != tensor.offset - extent->offset)
      return Error(ErrorCode::kRefused, quoted(tensor) + " shares memory with \"" +
                                            places.back().second->name +
                                            "\" at the source but not at the target");
  }
  CKPT_TRYV(check_disjoint(places));
  if (complete) {
    std::set<std::string_view> names;
    for (const TensorInfo& tensor : plan.tensors) names.insert(tensor.name);
    for (const TensorInfo& tensor : standby)
      if (tensor.kind != CKPT_SCRATCH && names.count(tensor.name) == 0)
        return Error(ErrorCode::kRefused, quoted(tensor) + " " + wire::describe_tensor(tensor) +
                                              " exists at the target only: the source has not named it");
  }
  std::vector<Place> result;
  result.reserve(places.size());
  for (const auto& [place, tensor] : places) result.push_back(place);
  return result;
}

}  // namespace ckpt::image
