// SPDX-License-Identifier: Apache-2.0
// Whether an encoding pays on this link with these cores (DESIGN §5: "one that slows the pipeline is not used").
//
// With n coding threads at C bytes/s each and a link of L bytes/s, encoding by ratio r makes the transfer take
// max(1/(n*C), 1/(r*L)) per byte instead of 1/L (reference: dataplane.md §2 "Which codec at which link"). C is learnt from what
// was encoded so far, per encoding; L is told.
//
// Threads: any; lock-free. No function fails. Rates are bytes per second, 0 = not known.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "libckpt/base/clock.h"
#include "libckpt/codec/codec.h"
#include "libckpt/codec/coder.h"

namespace ckpt::codec {

// What the operator asked for (--codec). Values are on the wire.
enum class CodecMode : std::uint8_t { kInvalid = 0, kAuto = 1, kRaw = 2, kPlanes = 3, kDifference = 4 };
[[nodiscard]] constexpr bool is_known(CodecMode mode) {
  return mode >= CodecMode::kAuto && mode <= CodecMode::kDifference;
}

class Chooser {
 public:
  Chooser(CodecMode mode, std::uint32_t threads) : mode_(mode), threads_(threads) {}

  // What the link carries: its limit, or what was measured while only sending.
  void set_link_rate(std::uint64_t bytes_per_second) noexcept { link_rate_.store(bytes_per_second); }
  // What an encoding cost, on the thread that did it.
  void observe(Encoding encoding, std::uint64_t plain_bytes, Nanos busy) noexcept;
  // False: sampling this chunk cannot change the answer, which is kRaw.
  [[nodiscard]] bool may_encode() const noexcept;
  // Which encoding to use for a chunk with this estimate.
  [[nodiscard]] Encoding choose(const Estimate& estimate) const noexcept;
  [[nodiscard]] CodecMode mode() const noexcept { return mode_; }

 private:
  static constexpr std::size_t kEncodings = static_cast<std::size_t>(Encoding::kLast) + 1;
  const CodecMode mode_;
  const std::uint32_t threads_;
  std::atomic<std::uint64_t> link_rate_{0};
  std::array<std::atomic<std::uint64_t>, kEncodings> rate_{};  // of one thread, learnt
};

}  // namespace ckpt::codec
