// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/engine/source/policy/rate_limiter.h"

#include <algorithm>

namespace ckpt::engine {

Nanos RateLimiter::admit(std::uint64_t bytes, Nanos now) noexcept {
  const std::uint64_t rate = this->rate();
  if (rate == 0) return now;
  const auto cost = static_cast<Nanos>(static_cast<unsigned __int128>(bytes) * 1'000'000'000 / rate);
  Nanos next = next_.load(std::memory_order_relaxed);
  Nanos start = 0;
  do {
    start = std::max(next, now - kCatchUp);
    if (start > now) return start;
  } while (!next_.compare_exchange_weak(next, start + cost, std::memory_order_relaxed));
  return now;
}

}  // namespace ckpt::engine
