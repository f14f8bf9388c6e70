// SPDX-License-Identifier: Apache-2.0
// --bandwidth: spaces messages on a time line, so that the rate is exact over any span longer than one message and no burst
// exceeds one message. Every lane reserves from the same limiter. Threads: any, lock-free. No function fails.
#pragma once

#include <atomic>
#include <cstdint>

#include "libckpt/base/clock.h"

namespace ckpt::engine {

class RateLimiter {
 public:
  explicit RateLimiter(std::uint64_t bytes_per_second = 0) : rate_(bytes_per_second) {}

  // 0 = unlimited. Holds for the next reservation.
  void set_rate(std::uint64_t bytes_per_second) noexcept {
    rate_.store(bytes_per_second, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t rate() const noexcept { return rate_.load(std::memory_order_relaxed); }

  // When `bytes` may leave; never before `now`.
  [[nodiscard]] Nanos reserve(std::uint64_t bytes, Nanos now) noexcept;

 private:
  std::atomic<std::uint64_t> rate_;
  std::atomic<Nanos> next_{0};  // the line is free from here on
};

}  // namespace ckpt::engine
