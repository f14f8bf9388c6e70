// SPDX-License-Identifier: Apache-2.0
// The memory to move: the source's tensors, and their extents. An extent is a run of device memory that is
// sent as one engine region: one tensor with everything inside it. Memory that is named twice (tied weights,
// views) is therefore sent once. The source builds a plan. The target matches the plan with its standby's
// tensors by name, dtype and shape, and finds the place of each extent.
//
//   CKPT_TRY(plan, build_plan(tensors, chunk_bytes, generation, first_extent));      // the source
//   const auto bytes = wire::encode(plan);
//
//   CKPT_TRY(plan, decode_plan(bytes));                                              // the target
//   CKPT_TRY(match, match_plan(plan, standby_tensors, complete));
//
// Threads: pure functions. Errors: kRefused names the tensor and the difference, which the user must change.
// kProtocol is for bytes that no source sends. Sizes and offsets are bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/protocol/wire/codec.h"
#include "libckpt/protocol/wire/tensor.h"

namespace ckpt::image {

inline constexpr std::uint32_t kFormatVersion = 1;
inline constexpr std::size_t kMaxTensors = 1 << 20;

struct Extent {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  std::uint64_t id = 0;  // the id of the extent, which is never 0 and is unique within a migration
  std::uint64_t generation = 0;
  std::uint64_t region = 0;  // the id of the source's allocation
  std::uint64_t offset = 0;  // the offset of the extent in the region
  std::uint64_t bytes = 0;
  std::uint32_t tensor = 0;  // the index in Plan::tensors of the tensor that spans the extent
  template <class A>
  decltype(auto) fields(A& a) {
    return a(id, generation, region, offset, bytes, tensor);
  }
};

struct Plan {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  std::uint32_t format = kFormatVersion;
  std::uint64_t chunk_bytes = 0;
  std::vector<wire::TensorInfo> tensors;  // the tensors, sorted by (region, offset, longest first, name)
  std::vector<Extent> extents;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(format, chunk_bytes, tensors, extents);
  }
  [[nodiscard]] std::uint64_t state_bytes() const;
};

// The place of a source's extent in the target's own memory.
struct Place {
  std::uint64_t extent = 0;
  std::uint64_t generation = 0;
  std::uint64_t bytes = 0;
  std::uint64_t region = 0;  // the id of the target's allocation
  std::uint64_t offset = 0;  // the offset of the extent in the region
};

// Builds a plan. Scratch tensors and tensors without a region get no extent. Extents are numbered from
// `first_extent` on. A later plan of the same migration (for tensors named while it runs) continues at the
// end of the last plan. Returns kRefused for tensors that overlap partly, or do not start at a multiple of 16
// bytes.
Result<Plan> build_plan(std::span<const wire::TensorInfo> tensors, std::uint64_t chunk_bytes,
                        std::uint64_t generation, std::uint64_t first_extent);

// Decodes bytes from outside and checks everything that match_plan() relies on.
Result<Plan> decode_plan(std::span<const std::byte> bytes);

// The places of all extents. Extents in `dropped` have no place: the standby does not use their content.
struct PlanMatch {
  std::vector<Place> places;
  std::vector<Extent> dropped;
  std::vector<std::string> differences;  // the allowed differences that were found
};

// Matches a plan with the standby's tensors. Returns kRefused with all tensors that the standby lacks or has
// with a different dtype, shape, or alias structure. Tensors that only the standby has are listed too,
// because their content would be undefined. With `complete` false, for a later plan of the same migration,
// such tensors are allowed. `allowed` is a combination of wire::kAllow... for a standby that is a new
// program.
Result<PlanMatch> match_plan(const Plan& plan, std::span<const wire::TensorInfo> standby, bool complete,
                             std::uint8_t allowed = 0);

}  // namespace ckpt::image
