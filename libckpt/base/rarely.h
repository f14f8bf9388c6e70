// SPDX-License-Identifier: Apache-2.0
// For a warning that others can cause as often as they like: it is said once in a while, with how many were
// left out.
// Threads: one. Ownership: a value. Errors: none.
#pragma once

#include <cstdint>
#include <optional>

#include "libckpt/base/clock.h"

namespace ckpt {

class Rarely {
 public:
  static constexpr Nanos kApart = Nanos{10} * 1'000'000'000;

  // Nothing: not now. Else how many were left out since the last one.
  std::optional<std::uint64_t> turn(Nanos now) {
    if (said_ && now - *said_ < kApart) {
      ++left_out_;
      return std::nullopt;
    }
    said_ = now;
    const std::uint64_t left_out = left_out_;
    left_out_ = 0;
    return left_out;
  }

 private:
  std::optional<Nanos> said_;
  std::uint64_t left_out_ = 0;
};

}  // namespace ckpt
