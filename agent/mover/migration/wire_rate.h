// SPDX-License-Identifier: Apache-2.0
// How fast bytes go onto the wire, over the last second or so. Threads: one owner. No clock; no function
// fails.
#pragma once

#include <cstdint>
#include <deque>

#include "libckpt/base/clock.h"

namespace ckpt::mover {

class WireRate {
 public:
  // `bytes`: all that have been sent by `now`. Bytes per second; 0 until a tenth of a second has been
  // observed.
  std::uint64_t observe(std::uint64_t bytes, Nanos now);

 private:
  struct Sample {
    std::uint64_t bytes;
    Nanos time;
  };
  std::deque<Sample> samples_;
};

}  // namespace ckpt::mover
