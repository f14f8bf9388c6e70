// SPDX-License-Identifier: Apache-2.0
// Whether encoding makes the whole move faster, found out by trying (docs/design.md §5: a codec that slows
// the pipeline is not used). The rate of a coding thread alone means little where cores are shared with
// copies, the target or the job. So the bytes before encoding that arrive per second are measured in windows
// with and without, while the lanes have enough to do. The better choice is kept and the other tried again
// now and then. While encoding beats the link's raw rate, there is no trial.
//
// Threads: observe() one; on() any. A pure object: no clock, no I/O; no function fails. Bytes, nanoseconds.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "libckpt/base/clock.h"

namespace ckpt::engine {

class EncodingTrial {
 public:
  // The bytes of a window. The first kLagBytes after a change do not count: they were staged before it.
  static constexpr std::uint64_t kWindowBytes = std::uint64_t{48} << 20;
  static constexpr std::uint64_t kLagBytes = std::uint64_t{16} << 20;
  static constexpr std::uint32_t kRetryWindows = 32;

  // So many bytes before encoding arrived in so much time, in which the lanes never ran dry. link_rate: 0 =
  // not known.
  void observe(std::uint64_t plain_bytes, Nanos time, std::uint64_t link_rate) noexcept;
  [[nodiscard]] bool on() const noexcept { return on_.load(std::memory_order_relaxed); }

 private:
  void end_window(std::uint64_t link_rate) noexcept;
  void turn(bool on) noexcept;

  std::atomic<bool> on_{true};
  std::array<double, 2> rate_{0, 0};  // without and with, of their last windows; 0 = not tried
  std::uint64_t lag_ = 0;             // bytes of this window that do not count yet
  std::uint64_t bytes_ = 0;
  Nanos time_ = 0;
  std::uint32_t windows_ = 0;  // since the other codec was tried
};

}  // namespace ckpt::engine
