// SPDX-License-Identifier: Apache-2.0
// Measures whether encoding makes the whole move faster (docs/design.md §5: a codec that slows the pipeline
// is not used). The rate of a coding thread alone shows little if cores are shared with copies, the target or
// the job. The bytes before encoding that arrive per second are therefore measured in windows with and
// without encoding, while the lanes have enough work. The better choice stays in use, and the other is tried
// again occasionally. While encoding exceeds the link's raw rate, there is no trial.
//
// Threads: one thread calls observe(), and any thread on(). A pure object: no clock, no I/O; no function
// fails. Bytes, nanoseconds.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "libckpt/base/clock.h"

namespace ckpt::engine {

class EncodingTrial {
 public:
  // The bytes of a window. The first kLagBytes after a change do not count, because they were staged before
  // the change.
  static constexpr std::uint64_t kWindowBytes = std::uint64_t{48} << 20;
  static constexpr std::uint64_t kLagBytes = std::uint64_t{16} << 20;
  static constexpr std::uint32_t kRetryWindows = 32;

  // Notes that this many bytes before encoding arrived in this time, in which the lanes always had work.
  // `link_rate` is 0 if it is not known.
  void observe(std::uint64_t plain_bytes, Nanos time, std::uint64_t link_rate) noexcept;
  [[nodiscard]] bool on() const noexcept { return on_.load(std::memory_order_relaxed); }

 private:
  void end_window(std::uint64_t link_rate) noexcept;
  void turn(bool on) noexcept;

  std::atomic<bool> on_{true};
  std::array<double, 2> rate_{0, 0};  // the rates of the last windows without and with encoding; 0 if not
                                      // tried
  std::uint64_t lag_ = 0;             // the bytes of this window that do not count yet
  std::uint64_t bytes_ = 0;
  Nanos time_ = 0;
  std::uint32_t windows_ = 0;  // the number of windows since the other choice was tried
};

}  // namespace ckpt::engine
