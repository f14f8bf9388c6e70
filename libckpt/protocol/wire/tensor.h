// SPDX-License-Identifier: Apache-2.0
// A named tensor in its encoded form: from agent to mover, and in the plan from mover to mover. A value type;
// call check_tensor() before using a tensor from outside. Sizes are bytes; dtype and kind are those of
// ckpt.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libckpt/base/result.h"

namespace ckpt::wire {

inline constexpr std::size_t kMaxTensorNameBytes = 255;
inline constexpr std::size_t kMaxTensorDims = 8;
inline constexpr std::uint64_t kNoRegion = 0;

struct TensorInfo {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  std::string name;
  std::uint64_t region = kNoRegion;  // the region of the tensor; kNoRegion if the tensor cannot be exported,
                                     // so that its bytes travel with the host state
  std::uint64_t offset = 0;          // the offset in the region
  std::uint64_t bytes = 0;
  std::uint32_t dtype = 0;  // the type of the elements, a ckpt_dtype
  std::uint32_t kind = 0;   // the kind of the tensor, a ckpt_kind
  std::vector<std::uint64_t> shape;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(name, region, offset, bytes, dtype, kind, shape);
  }
};

// Checks for a known dtype and kind, a printable name, bytes equal to shape times dtype, and no overflow.
// Returns kProtocol with the tensor's name.
Result<void> check_tensor(const TensorInfo& tensor);
// Returns a text such as "f32[1024,768]".
[[nodiscard]] std::string describe_tensor(const TensorInfo& tensor);

}  // namespace ckpt::wire
