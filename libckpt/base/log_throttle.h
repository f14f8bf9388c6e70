// SPDX-License-Identifier: Apache-2.0
// A rate limit for a warning that other parties can cause any number of times. The warning is repeated at
// intervals, with the number of omitted warnings.
// Threads: one. Ownership: a plain value. Errors: none.
#pragma once

#include <cstdint>
#include <optional>

#include "libckpt/base/clock.h"

namespace ckpt {

class LogThrottle {
 public:
  static constexpr Nanos kApart = Nanos{10} * 1'000'000'000;

  // Returns nullopt if the warning must be omitted now. Otherwise returns the number of omitted warnings
  // since the last one.
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
