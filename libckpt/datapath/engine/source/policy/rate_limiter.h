// SPDX-License-Identifier: Apache-2.0
// --bandwidth: it counts the bytes handed to the transport, headers and payloads of chunks and blobs. One
// line of time for all lanes: a message is booked when it leaves, in the order in which messages leave. A
// message may come late: a sleep was too long, or a slot was not staged yet. It leaves at once and the line
// stays where it was. So the lateness is made up, by at most kCatchUp, which bounds a burst. Hence over any
// span the bytes are at most rate * (span + kCatchUp) + one message. With something to send all the time they
// are at least rate * span less the same.
//
// Threads: any, lock-free. No function fails. A new rate holds for the next message.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "libckpt/base/clock.h"

namespace ckpt::engine {

class RateLimiter {
 public:
  // A few messages at fabric rates; more than a sleep is ever late on a machine that can carry the rate.
  static constexpr Nanos kCatchUp = 5'000'000;

  explicit RateLimiter(std::uint64_t bytes_per_second = 0) : rate_(bytes_per_second) {}

  // 0 = unlimited.
  void set_rate(std::uint64_t bytes_per_second) noexcept {
    rate_.store(bytes_per_second, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t rate() const noexcept { return rate_.load(std::memory_order_relaxed); }

  // The greatest useful length of a message: the link's bytes of a millisecond, within these bounds.
  [[nodiscard]] std::uint64_t message_bytes(std::uint64_t least, std::uint64_t most) const noexcept {
    const std::uint64_t rate = this->rate();
    return rate == 0 ? most : std::clamp(rate / 1000, least, most);
  }

  // `now`: the message may leave and is booked. A later time: not yet, ask again then.
  [[nodiscard]] Nanos admit(std::uint64_t bytes, Nanos now) noexcept;

 private:
  std::atomic<std::uint64_t> rate_;
  std::atomic<Nanos> next_{0};  // the line is free from here on
};

}  // namespace ckpt::engine
