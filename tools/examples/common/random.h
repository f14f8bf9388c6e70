// SPDX-License-Identifier: Apache-2.0
// SplitMix64: the random numbers of the examples, which are equal on every machine. The whole state is one
// number, so that it can be host state of a job.
// Threads: one per object.
#pragma once

#include <cstdint>

namespace ckpt::examples {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t x = state_ += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
  }
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }

 private:
  std::uint64_t state_;
};

}  // namespace ckpt::examples
