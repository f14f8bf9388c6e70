// SPDX-License-Identifier: Apache-2.0
#include "tests/programs/torchlike/segments.h"

#include <algorithm>

#include "tools/examples/common/gpu.h"

namespace ckpt::examples {
namespace {

constexpr std::size_t kMaxUnits = 128;

std::uint64_t rounded(std::uint64_t bytes, std::uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Returns the handle type of physical memory that other processes of the node may import, as PyTorch
// requests: across nodes (FABRIC) if the driver supports this, otherwise by descriptors. The choice is made
// once.
CUmemAllocationHandleType& handle_type() {
  static CUmemAllocationHandleType type = CU_MEM_HANDLE_TYPE_FABRIC;
  return type;
}

}  // namespace

OwnSegments::~OwnSegments() {
  for (const auto& [at, bytes] : made_) cuMemFree(at);
}

Range OwnSegments::more(std::uint64_t bytes) {
  Range made;
  // A block of more than half a segment has its own segment of a matching size.
  made.bytes = bytes <= unit_ / 2 ? unit_ : rounded(bytes, kSmallSegment);
  check(cuMemAlloc(&made.at, made.bytes), "cuMemAlloc");
  made_[made.at] = made.bytes;
  return made;
}

Range OwnSegments::releasable(const Range& free) const {
  const auto found = made_.find(free.at);
  return found != made_.end() && found->second == free.bytes ? free : Range{};
}

void OwnSegments::give_back(const Range& range) {
  made_.erase(range.at);
  check(cuMemFree(range.at), "cuMemFree");
}

ExpandableSegments::ExpandableSegments(std::uint64_t unit, CUdevice device)
    : unit_(unit), device_(device), handles_(kMaxUnits) {
  check(cuMemAddressReserve(&base_, unit_ * kMaxUnits, 0, 0, 0), "cuMemAddressReserve");
}

ExpandableSegments::~ExpandableSegments() {
  for (std::size_t i = 0; i < handles_.size(); ++i) {
    if (!handles_[i]) continue;
    cuMemUnmap(address(i), unit_);
    cuMemRelease(*handles_[i]);
  }
  cuMemAddressFree(base_, unit_ * kMaxUnits);
}

CUmemGenericAllocationHandle ExpandableSegments::create() {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device_};
  properties.requestedHandleTypes = handle_type();
  CUmemGenericAllocationHandle handle = 0;
  CUresult result = cuMemCreate(&handle, unit_, &properties, 0);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY &&
      handle_type() == CU_MEM_HANDLE_TYPE_FABRIC) {
    handle_type() = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties.requestedHandleTypes = handle_type();
    result = cuMemCreate(&handle, unit_, &properties, 0);
  }
  check(result, "cuMemCreate");
  return handle;
}

// Finds the first gap that is large enough, and returns a range in it.
Range ExpandableSegments::more(std::uint64_t bytes) {
  const std::size_t wanted = rounded(bytes, unit_) / unit_;
  std::size_t first = 0;
  std::size_t found = 0;
  for (std::size_t i = 0; i < handles_.size() && found < wanted; ++i) {
    if (handles_[i]) {
      first = i + 1;
      found = 0;
    } else {
      ++found;
    }
  }
  if (found < wanted) fail("the addresses of an expandable segment are used up");
  for (std::size_t i = first; i < first + wanted; ++i) {
    handles_[i] = create();
    check(cuMemMap(address(i), unit_, 0, *handles_[i], 0), "cuMemMap");
  }
  CUmemAccessDesc access{};
  access.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device_};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  check(cuMemSetAccess(address(first), wanted * unit_, &access, 1), "cuMemSetAccess");
  return {address(first), wanted * unit_};
}

Range ExpandableSegments::releasable(const Range& free) const {
  const CUdeviceptr begin = base_ + rounded(free.at - base_, unit_);
  const CUdeviceptr end = base_ + (free.end() - base_) / unit_ * unit_;
  return begin < end ? Range{begin, end - begin} : Range{};
}

void ExpandableSegments::give_back(const Range& range) {
  for (std::size_t i = (range.at - base_) / unit_; address(i) < range.end(); ++i) {
    check(cuMemUnmap(address(i), unit_), "cuMemUnmap");
    check(cuMemRelease(*handles_[i]), "cuMemRelease");
    handles_[i].reset();
  }
}

}  // namespace ckpt::examples
