// SPDX-License-Identifier: Apache-2.0
#include "libckpt/store/plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>

#include <ckpt/ckpt.h>

#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::image {
namespace {

using wire::TensorInfo;

constexpr std::uint64_t kAlignment = 16;  // the alignment that the device's fingerprint kernel requires

bool is_copied(const TensorInfo& tensor) {
  return tensor.kind != CKPT_SCRATCH && tensor.region != wire::kNoRegion;
}

std::string quoted(const TensorInfo& tensor) {
  return "Tensor \"" + tensor.name + "\"";
}

// Orders tensors so that a tensor comes before the tensors inside it.
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
                                            " bytes after a multiple of 16: align it in its allocation");
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
  if (plan.tensors.size() > kMaxTensors) return Error(ErrorCode::kProtocol, "The plan has too many tensors");
  CKPT_TRYV(check_names(plan.tensors));
  // build_plan makes the extents from the tensors. The extents can therefore be checked by making them again.
  const std::uint64_t first = plan.extents.empty() ? 1 : plan.extents.front().id;
  const std::uint64_t generation = plan.extents.empty() ? 1 : plan.extents.front().generation;
  if (first == 0 || generation == 0)
    return Error(ErrorCode::kProtocol, "The plan has an extent or a generation with the value 0");
  CKPT_TRY(again, build_plan(plan.tensors, plan.chunk_bytes, generation, first));
  const auto key = [](const Extent& e) {
    return std::tuple(e.id, e.generation, e.region, e.offset, e.bytes, e.tensor);
  };
  if (!std::equal(plan.extents.begin(), plan.extents.end(), again.extents.begin(), again.extents.end(),
                  [&](const Extent& a, const Extent& b) { return key(a) == key(b); }))
    return Error(ErrorCode::kProtocol, "The plan's extents do not match its tensors");
  for (std::size_t i = 0; i < plan.tensors.size(); ++i)
    if (plan.tensors[i].name != again.tensors[i].name)
      return Error(ErrorCode::kProtocol, "The plan's tensors are not in order");
  return plan;
}

namespace {

constexpr std::size_t kMaxListed = 8;

std::string list_of(const std::vector<std::string>& texts) {
  std::string list;
  for (std::size_t i = 0; i < texts.size() && i < kMaxListed; ++i) list += (i == 0 ? "" : "; ") + texts[i];
  if (texts.size() > kMaxListed) list += "; and " + std::to_string(texts.size() - kMaxListed) + " more";
  return list;
}

// One run of matching a plan with a standby's tensors.
class Matching {
 public:
  Matching(const Plan& plan, std::span<const TensorInfo> standby, std::uint8_t allowed)
      : plan_(plan), standby_(standby), allowed_(allowed) {
    for (const TensorInfo& tensor : standby) by_name_.emplace(tensor.name, &tensor);
  }
  Result<PlanMatch> run(bool complete);

 private:
  struct Placed {
    const Extent* extent = nullptr;
    const TensorInfo* at_source = nullptr;
    const TensorInfo* at_target = nullptr;  // the standby's tensor for this tensor; null if the tensor is
                                            // dropped
    Place place;
  };

  void differs(std::uint8_t kind, std::string text) {
    ((allowed_ & kind) != 0 ? match_.differences : refused_).push_back(std::move(text));
  }
  const TensorInfo* find(const TensorInfo& tensor);
  Result<void> check_kind(const TensorInfo& tensor, const TensorInfo& match) const;
  Result<void> place(std::uint32_t number);
  Result<void> place_extent(const Extent& extent, const TensorInfo& tensor, const TensorInfo* match);
  Result<void> check_inside(const TensorInfo& tensor, const TensorInfo* match) const;
  Result<void> check_disjoint();
  void match_new();

  const Plan& plan_;
  const std::span<const TensorInfo> standby_;
  const std::uint8_t allowed_;
  std::unordered_map<std::string_view, const TensorInfo*> by_name_;
  std::vector<Placed> placed_;
  std::vector<std::string> refused_;
  PlanMatch match_;
};

// Returns the standby's tensor for this tensor of the source. Returns null if there is none, or if type or
// shape differ.
const TensorInfo* Matching::find(const TensorInfo& tensor) {
  const auto it = by_name_.find(tensor.name);
  if (it == by_name_.end()) {
    differs(wire::kAllowMissing, quoted(tensor) + " " + wire::describe_tensor(tensor) +
                                     " does not exist at the target: the standby has no tensor of that name");
    return nullptr;
  }
  const TensorInfo& match = *it->second;
  if (match.dtype == tensor.dtype && match.shape == tensor.shape) return &match;
  differs(wire::kAllowChanged, quoted(tensor) + " is " + wire::describe_tensor(tensor) +
                                   " at the source but " + wire::describe_tensor(match) + " at the target");
  return nullptr;
}

Result<void> Matching::check_kind(const TensorInfo& tensor, const TensorInfo& match) const {
  if ((match.kind == CKPT_SCRATCH) != (tensor.kind == CKPT_SCRATCH))
    return Error(ErrorCode::kRefused, quoted(tensor) + " is scratch memory on one side only");
  if ((match.region == wire::kNoRegion) != (tensor.region == wire::kNoRegion))
    return Error(ErrorCode::kRefused,
                 quoted(tensor) +
                     " can be exported on one side only: allocate the tensor with ckpt_alloc on both sides");
  if (is_copied(tensor) && match.offset % kAlignment != 0)
    return Error(ErrorCode::kRefused, quoted(tensor) + " is not aligned to 16 bytes at the target");
  return ok();
}

Result<void> Matching::place_extent(const Extent& extent, const TensorInfo& tensor, const TensorInfo* match) {
  Placed placed;
  placed.extent = &extent;
  placed.at_source = &tensor;
  placed.at_target = match;
  if (match != nullptr) {
    placed.place.extent = extent.id;
    placed.place.generation = extent.generation;
    placed.place.bytes = extent.bytes;
    placed.place.region = match->region;
    placed.place.offset = match->offset;
  }
  placed_.push_back(placed);
  return ok();
}

// Checks that the tensor has the same distance from the start of its extent at the target.
Result<void> Matching::check_inside(const TensorInfo& tensor, const TensorInfo* match) const {
  const Placed& outer = placed_.back();
  if (match == nullptr) return ok();
  if (outer.at_target == nullptr)
    return Error(ErrorCode::kRefused, quoted(tensor) + " lies within \"" + outer.at_source->name +
                                          "\" at the source, which the target does not have");
  if (match->region == outer.place.region &&
      match->offset - outer.place.offset == tensor.offset - outer.extent->offset)
    return ok();
  return Error(ErrorCode::kRefused, quoted(tensor) + " shares memory with \"" + outer.at_target->name +
                                        "\" at the source but not at the target");
}

Result<void> Matching::place(std::uint32_t number) {
  const TensorInfo& tensor = plan_.tensors[number];
  const TensorInfo* match = find(tensor);
  if (match != nullptr) {
    CKPT_TRYV(check_kind(tensor, *match));
  }
  if (!is_copied(tensor)) return ok();
  const std::size_t next = placed_.size();
  if (next < plan_.extents.size() && plan_.extents[next].tensor == number)
    return place_extent(plan_.extents[next], tensor, match);
  return check_inside(tensor, match);
}

// Checks that no two extents are written to the same memory. If they were, the standby would share memory
// that the source does not share.
Result<void> Matching::check_disjoint() {
  std::vector<const Placed*> retained;
  for (const Placed& placed : placed_)
    if (placed.at_target != nullptr) retained.push_back(&placed);
  std::sort(retained.begin(), retained.end(), [](const Placed* a, const Placed* b) {
    return std::tuple(a->place.region, a->place.offset) < std::tuple(b->place.region, b->place.offset);
  });
  for (std::size_t i = 1; i < retained.size(); ++i) {
    const Place& before = retained[i - 1]->place;
    if (retained[i]->place.region == before.region &&
        retained[i]->place.offset < before.offset + before.bytes)
      return Error(ErrorCode::kRefused, quoted(*retained[i]->at_target) + " shares memory with \"" +
                                            retained[i - 1]->at_target->name +
                                            "\" at the target but not at the source");
  }
  return ok();
}

void Matching::match_new() {
  std::set<std::string_view> names;
  for (const TensorInfo& tensor : plan_.tensors) names.insert(tensor.name);
  for (const TensorInfo& tensor : standby_)
    if (tensor.kind != CKPT_SCRATCH && names.count(tensor.name) == 0)
      differs(wire::kAllowNew, quoted(tensor) + " " + wire::describe_tensor(tensor) +
                                   " exists only at the target: the source has no tensor of that name");
}

Result<PlanMatch> Matching::run(bool complete) {
  for (std::uint32_t i = 0; i < plan_.tensors.size(); ++i) {
    CKPT_TRYV(place(i));
  }
  CKPT_TRYV(check_disjoint());
  if (complete) match_new();
  if (!refused_.empty()) return Error(ErrorCode::kRefused, list_of(refused_));
  for (const Placed& placed : placed_) {
    if (placed.at_target != nullptr) {
      match_.places.push_back(placed.place);
    } else {
      match_.dropped.push_back(*placed.extent);
    }
  }
  return std::move(match_);
}

}  // namespace

Result<PlanMatch> match_plan(const Plan& plan, std::span<const TensorInfo> standby, bool complete,
                             std::uint8_t allowed) {
  CKPT_TRYV(check_names(standby));
  return Matching(plan, standby, allowed).run(complete);
}

}  // namespace ckpt::image
