// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/api/tensor_table.h"

#include <algorithm>
#include <utility>

namespace ckpt::job {
namespace {

// The physical place of bytes: two mappings of one allocation are the same place.
struct Place {
  std::uint64_t region;
  std::uint64_t first;
  std::uint64_t end;
};

Place place_of(const Tensor& tensor) {
  const std::uint64_t first = tensor.region == local::kNoRegion ? tensor.pointer : tensor.offset;
  return {tensor.region, first, first + tensor.bytes};
}

bool overlaps_partly(const Place& a, const Place& b) {
  if (a.region != b.region || a.end <= b.first || b.end <= a.first) return false;
  const bool a_in_b = b.first <= a.first && a.end <= b.end;
  const bool b_in_a = a.first <= b.first && b.end <= a.end;
  return !a_in_b && !b_in_a;
}

}  // namespace

local::TensorRecord to_record(const Tensor& tensor) {
  local::TensorRecord record;
  record.name.assign(tensor.name);
  record.region = tensor.region;
  record.offset = tensor.offset;
  record.bytes = tensor.bytes;
  record.dtype = tensor.dtype;
  record.kind = tensor.kind;
  record.dims = static_cast<std::uint32_t>(tensor.shape.size());
  std::copy(tensor.shape.begin(), tensor.shape.end(), record.shape.begin());
  return record;
}

Result<void> TensorTable::add(Tensor tensor) {
  if (by_name_.contains(tensor.name)) {
    return Error(ErrorCode::kInvalidArgument,
                 "A tensor named '" + tensor.name + "' exists already; drop it first");
  }
  const Place place = place_of(tensor);
  for (const auto& [name, other] : by_name_) {
    if (overlaps_partly(place, place_of(other))) {
      return Error(ErrorCode::kInvalidArgument, "Tensor '" + tensor.name + "' overlaps tensor '" + name +
                                                    "' partly; one must lie inside the other");
    }
  }
  std::string name = tensor.name;
  by_name_.emplace(std::move(name), std::move(tensor));
  return ok();
}

bool TensorTable::remove(const std::string& name) {
  return by_name_.erase(name) != 0;
}

const Tensor* TensorTable::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &found->second;
}

const Tensor* TensorTable::any_in_region(std::uint64_t region) const {
  for (const auto& [name, tensor] : by_name_) {
    if (tensor.region == region) return &tensor;
  }
  return nullptr;
}

std::uint64_t TensorTable::state_bytes() const {
  std::vector<Place> places;
  for (const auto& [name, tensor] : by_name_) {
    if (tensor.region != local::kNoRegion && tensor.kind != CKPT_SCRATCH) places.push_back(place_of(tensor));
  }
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return std::pair(a.region, a.first) < std::pair(b.region, b.first);
  });
  std::uint64_t sum = 0;
  std::uint64_t region = local::kNoRegion;
  std::uint64_t covered = 0;
  for (const Place& place : places) {
    if (place.region != region) covered = 0;
    region = place.region;
    const std::uint64_t first = std::max(place.first, covered);
    if (place.end > first) sum += place.end - first;
    covered = std::max(covered, place.end);
  }
  return sum;
}

std::uint64_t TensorTable::unexportable_bytes() const {
  std::uint64_t sum = 0;
  for (const auto& [name, tensor] : by_name_) {
    if (tensor.travels_with_host_state()) sum += tensor.bytes;
  }
  return sum;
}

const Tensor* TensorTable::largest_unexportable() const {
  const Tensor* largest = nullptr;
  for (const auto& [name, tensor] : by_name_) {
    if (tensor.travels_with_host_state() && (largest == nullptr || tensor.bytes > largest->bytes))
      largest = &tensor;
  }
  return largest;
}

}  // namespace ckpt::job
