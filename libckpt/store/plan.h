// SPDX-License-Identifier: Apache-2.0
// The memory to move: the source's tensors, and their extents. An extent is a run of device memory that is
// sent as one engine region: one tensor with everything inside it. So memory named twice (tied weights,
// views) is sent once. The source builds a plan, the target matches it with its standby's tensors by name,
// dtype and shape and finds where each extent belongs.
//
//   CKPT_TRY(plan, build_plan(tensors, chunk_bytes, generation, first_extent));      // the source
//   const auto bytes = wire::encode(plan);
//
//   CKPT_TRY(plan, decode_plan(bytes));                                              // the target
//   CKPT_TRY(match, match_plan(plan, standby_tensors, complete));
//
// Threads: pure functions. Errors: kRefused names the tensor and what differs (the user's to change),
// kProtocol for bytes that no source sends. Sizes and offsets are bytes.
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
  std::uint64_t id = 0;  // never 0, unique in a migration
  std::uint64_t generation = 0;
  std::uint64_t region = 0;  // the source's allocation
  std::uint64_t offset = 0;  // in it
  std::uint64_t bytes = 0;
  std::uint32_t tensor = 0;  // index in Plan::tensors of the one that spans it
  template <class A>
  decltype(auto) fields(A& a) {
    return a(id, generation, region, offset, bytes, tensor);
  }
};

struct Plan {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  std::uint32_t format = kFormatVersion;
  std::uint64_t chunk_bytes = 0;
  std::vector<wire::TensorInfo> tensors;  // sorted by (region, offset, longest first, name)
  std::vector<Extent> extents;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(format, chunk_bytes, tensors, extents);
  }
  [[nodiscard]] std::uint64_t state_bytes() const;
};

// Where an extent of the source is in the target's own memory.
struct Place {
  std::uint64_t extent = 0;
  std::uint64_t generation = 0;
  std::uint64_t bytes = 0;
  std::uint64_t region = 0;  // the target's
  std::uint64_t offset = 0;  // in it
};

// Scratch tensors and those without a region get no extent. `first_extent` numbers the extents from there on;
// a later plan of the same migration (tensors named while it runs) goes on where the last one ended.
// kRefused: tensors that overlap partly, or do not start at a multiple of 16 bytes.
Result<Plan> build_plan(std::span<const wire::TensorInfo> tensors, std::uint64_t chunk_bytes,
                        std::uint64_t generation, std::uint64_t first_extent);

// Bytes from outside: decodes and checks everything that match_plan() relies on.
Result<Plan> decode_plan(std::span<const std::byte> bytes);

// Where all extents go. Those of `dropped` have no place: the standby does not take their content.
struct PlanMatch {
  std::vector<Place> places;
  std::vector<Extent> dropped;
  std::vector<std::string> differences;  // that were allowed
};

// kRefused: tensors that the standby lacks or has in another dtype, shape, or alias structure, all of them at once.
// Tensors that only the standby has are listed too: their content would be undefined (`complete` false, for a later
// plan of the same migration, allows them). `allowed`: wire::kAllow..., of a standby that is a new program.
Result<PlanMatch> match_plan(const Plan& plan, std::span<const wire::TensorInfo> standby, bool complete,
                             std::uint8_t allowed = 0);

}  // namespace ckpt::image
