// SPDX-License-Identifier: Apache-2.0
// Decides whether an encoding pays on this link with these cores (docs/design.md §5: "one that slows the
// pipeline is not used").
//
// There are n coding threads at C bytes/s each and a link of L bytes/s. Encoding by ratio r makes the
// transfer take max(1/(n*C), 1/(r*L)) per byte instead of 1/L. It gains min(n*C/L, r). C is learned from
// earlier chunks, per encoding; set_link_rate() sets L. Below a gain of 3 % a chunk is sent raw.
//
// An encoding with an unknown or too low rate is tried again with a few chunks of every thousand, since the
// cores' load changes.
//
//   if (chooser.may_encode()) {
//     const Estimate estimate = coder.estimate(chunk, previous);
//     const Encoding encoding = chooser.choose(estimate);
//     if (encoding != Encoding::kRaw && coder.encode(encoding, chunk, previous, out))
//       chooser.observe(encoding, chunk.size(), busy);
//   }
//
// There are forced modes. kRaw never encodes. kPlanes uses the best planes, however slow. kDifference uses
// the difference if there is a previous version and the difference is smaller, otherwise planes. kPlanes and
// kDifference send chunks raw that do not shrink.
//
// Threads: any; lock-free. No function fails. Rates are bytes per second; 0 means not known.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "libckpt/base/clock.h"
#include "libckpt/datapath/codec/codec.h"
#include "libckpt/datapath/codec/coder.h"

namespace ckpt::codec {

// The operator's choice (--codec). The values are sent on the wire.
enum class CodecMode : std::uint8_t { kInvalid = 0, kAuto = 1, kRaw = 2, kPlanes = 3, kDifference = 4 };
[[nodiscard]] constexpr bool is_known(CodecMode mode) {
  return mode >= CodecMode::kAuto && mode <= CodecMode::kDifference;
}

class Chooser {
 public:
  // Creates a chooser. `threads` is the number of threads that encode at the same time.
  Chooser(CodecMode mode, std::uint32_t threads) : mode_(mode), threads_(threads) {}

  // Sets the link's limit, or the rate that was measured while only sending. Until the rate is known, kAuto
  // sends raw.
  void set_link_rate(std::uint64_t bytes_per_second) noexcept { link_rate_.store(bytes_per_second); }
  // Notes the time of an encoding on its thread, including sampling. Do not call it for an abandoned chunk,
  // whose time is short and does not measure the rate. Only the rates of planes and differences are learned.
  void observe(Encoding encoding, std::uint64_t plain_bytes, Nanos busy) noexcept;
  // Returns false if sampling this chunk cannot change the answer, which is kRaw. It counts chunks, so call
  // it once per chunk.
  [[nodiscard]] bool may_encode() const noexcept;
  // Returns the encoding to use for a chunk with this estimate.
  [[nodiscard]] Encoding choose(const Estimate& estimate) const noexcept;
  [[nodiscard]] CodecMode mode() const noexcept { return mode_; }
  // Returns the learned rate of one thread with the encoding.
  [[nodiscard]] std::uint64_t rate(Encoding encoding) const noexcept {
    return rate_[static_cast<std::size_t>(encoding)].load(std::memory_order_relaxed);
  }

 private:
  static constexpr std::size_t kEncodings = static_cast<std::size_t>(Encoding::kLast) + 1;
  // The number of chunks per kRetryEvery that are sampled and encoded although encoding does not seem to pay.
  static constexpr std::int32_t kTrials = 8;
  static constexpr std::uint32_t kRetryEvery = 1024;

  [[nodiscard]] double gain(double rate, double ratio) const noexcept;
  [[nodiscard]] bool one_may_pay() const noexcept;
  [[nodiscard]] static bool consume(std::atomic<std::int32_t>& credits) noexcept;
  [[nodiscard]] Encoding choose_by_gain(const Estimate& estimate) const noexcept;

  const CodecMode mode_;
  const std::uint32_t threads_;
  std::atomic<std::uint64_t> link_rate_{0};
  std::array<std::atomic<std::uint64_t>, kEncodings> rate_{};  // the learned rates of one thread
  // Mutable, because a call changes the answer to the next call, but not a property of the chooser.
  mutable std::atomic<std::uint32_t> asked_{0};
  mutable std::atomic<std::int32_t> samples_left_{kTrials}, trials_left_{kTrials};
};

}  // namespace ckpt::codec
