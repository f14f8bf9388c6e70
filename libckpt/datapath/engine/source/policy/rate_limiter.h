// SPDX-License-Identifier: Apache-2.0
// The rate limit of --bandwidth. It counts the bytes passed to the transport: headers and payloads of chunks
// and blobs. There is one timeline for all lanes: a message is booked when it is sent, in the order of
// sending. A message may be late, after a long sleep or while its slot is not staged yet. It is sent at once,
// and the timeline does not move. The following messages make up for the delay, by at most kCatchUp, which
// limits a burst. Over any duration the bytes are thus at most rate * (duration + kCatchUp) + one message. If
// there is always data to send, they are at least rate * duration minus the same amount.
//
// Threads: any, lock-free. No function fails. A new rate applies from the next message on.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "libckpt/base/clock.h"

namespace ckpt::engine {

class RateLimiter {
 public:
  // The time of a few messages at fabric rates. On a machine that can carry the rate, no sleep overruns by
  // more than this.
  static constexpr Nanos kCatchUp = 5'000'000;

  explicit RateLimiter(std::uint64_t bytes_per_second = 0) : rate_(bytes_per_second) {}

  // Sets the rate; 0 means unlimited.
  void set_rate(std::uint64_t bytes_per_second) noexcept {
    rate_.store(bytes_per_second, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t rate() const noexcept { return rate_.load(std::memory_order_relaxed); }

  // Returns the greatest useful length of a message: the link's bytes per millisecond, within these bounds.
  [[nodiscard]] std::uint64_t message_bytes(std::uint64_t min_bytes, std::uint64_t max_bytes) const noexcept {
    const std::uint64_t rate = this->rate();
    return rate == 0 ? max_bytes : std::clamp(rate / 1000, min_bytes, max_bytes);
  }

  // Returns `now` if the message may be sent, and books it. Otherwise returns a later time at which to call
  // again.
  [[nodiscard]] Nanos admit(std::uint64_t bytes, Nanos now) noexcept;

 private:
  std::atomic<std::uint64_t> rate_;
  std::atomic<Nanos> next_{0};  // the time from which the timeline is free
};

}  // namespace ckpt::engine
