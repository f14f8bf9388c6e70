// SPDX-License-Identifier: Apache-2.0
// Memory that is needed next: a thread that computes meanwhile without waiting for memory takes it piece by piece
// and prefetches it. A few lines at a time; of many at once a processor drops most.
//
// Threads: an object belongs to one thread at a time. Nothing is read or written, no function fails.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

namespace ckpt::codec {

// One line. Not into the first level: the present computation fills it.
[[gnu::always_inline]] inline void prefetch(const std::byte* at) noexcept {
  __builtin_prefetch(at, 0, 2);
}

class PrefetchQueue {
 public:
  static constexpr std::size_t kLineBytes = 64;
  static constexpr std::size_t kMaxRanges = 3;

  // In the order in which they are taken; no more than kMaxRanges.
  void add(std::span<const std::byte> range) noexcept { ranges_[count_++] = range; }

  // What is left of it, in lines.
  [[nodiscard]] std::size_t lines() const noexcept {
    std::size_t bytes = 0;
    for (const std::span<const std::byte>& range : ranges_) bytes += range.size();
    return bytes / kLineBytes;
  }

  struct Piece {
    const std::byte* at;
    std::size_t turns;
  };
  // Whole turns of so many lines, `max_turns` at most; none once all is taken but ends shorter than a turn.
  Piece take(std::size_t max_turns, std::size_t lines_a_turn) noexcept {
    for (; first_ < count_; ++first_) {
      std::span<const std::byte>& range = ranges_[first_];
      const std::size_t turn = lines_a_turn * kLineBytes;
      const std::size_t turns = std::min(range.size() / turn, max_turns);
      if (turns == 0) continue;
      const Piece piece{range.data(), turns};
      range = range.subspan(turns * turn);
      return piece;
    }
    return {nullptr, 0};
  }

 private:
  std::array<std::span<const std::byte>, kMaxRanges> ranges_{};
  std::size_t first_ = 0, count_ = 0;
};

}  // namespace ckpt::codec
