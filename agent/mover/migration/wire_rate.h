// SPDX-License-Identifier: Apache-2.0
// Measures how fast bytes are sent, over roughly the last second.
// Threads: one owner. The class uses no clock, and no function fails.
#pragma once

#include <cstdint>
#include <deque>

#include "libckpt/base/clock.h"

namespace ckpt::mover {

class WireRate {
 public:
  // Records `bytes`, the total number of bytes sent by `now`. Returns the rate in bytes per second, or 0
  // until a tenth of a second has been observed.
  std::uint64_t observe(std::uint64_t bytes, Nanos now);

 private:
  struct Sample {
    std::uint64_t bytes;
    Nanos time;
  };
  std::deque<Sample> samples_;
};

}  // namespace ckpt::mover
