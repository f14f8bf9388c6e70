// SPDX-License-Identifier: Apache-2.0
// How a scan shares a device with a job: how large a launch is, and how long to rest after it. A launch
// delays the job's kernels by about a millisecond at most, whatever the device's speed. The rests keep the
// scan's share of the time within the duty. Contexts of two processes share a GPU by time slices, so nothing
// else limits a scan.
// Threads: one at a time. Pure arithmetic: no clock, no device. No function fails. Times are nanoseconds.
#pragma once

#include <algorithm>
#include <cstdint>

#include "libckpt/base/clock.h"

namespace ckpt::track {

inline constexpr Nanos kLaunchTarget = 1'000'000;
// A slice below it ends before the thread that waits for it has got the next one under way: more are kept on
// the device, and run at once, so that one fills the processors that another leaves. Longer ones would only
// take memory from one another.
inline constexpr Nanos kShortSlice = 2'000'000;

// Where the scanner's time went since its creation.
struct ScanTimes {
  std::uint64_t launches = 0;
  std::uint64_t slices = 0;  // with a duty below 1
  Nanos busy = 0;            // slices with a duty below 1: from launch to their end
  Nanos paused = 0;          // after them
  Nanos longest_slice = 0;   // among them
};

class ScanPace {
 public:
  // `most`: what a launch takes on when the scan has the device for itself.
  explicit ScanPace(std::uint64_t most) : most_(most), slice_(std::min(most, kFirst)) {}

  // Bytes of the next launch. With a duty of 1 nobody is held up, and long launches lose less to their ends.
  [[nodiscard]] std::uint64_t slice_bytes(double duty) const noexcept { return duty < 1 ? slice_ : most_; }

  // A launch over `bytes` took `took` while the job ran. The next one is as long as fits into kLaunchTarget
  // at that rate; it grows step by step, since the first figure of a fast device is mostly the launch itself.
  void measured(std::uint64_t bytes, Nanos took) noexcept {
    const double fitting = static_cast<double>(bytes) * static_cast<double>(kLaunchTarget) /
                           static_cast<double>(std::max<Nanos>(took, 1));
    const std::uint64_t grown = slice_ <= most_ / kGrowth ? slice_ * kGrowth : most_;
    slice_ = fitting < static_cast<double>(grown)
                 ? std::max<std::uint64_t>(static_cast<std::uint64_t>(fitting), 1)
                 : grown;
  }

  // Slices follow one another; this one took so long, from its launch or from the end of the one before.
  void delivered(std::uint64_t bytes, Nanos took) noexcept {
    nanos_per_byte_ = static_cast<double>(took) / static_cast<double>(std::max<std::uint64_t>(bytes, 1));
  }
  // Whether slices with the device for themselves are shorter than kShortSlice, by the last one's rate; false
  // before the first.
  [[nodiscard]] bool short_slices() const noexcept {
    return nanos_per_byte_ > 0 &&
           nanos_per_byte_ * static_cast<double>(most_) < static_cast<double>(kShortSlice);
  }

  // The rest that a slice of `busy` owes.
  [[nodiscard]] static Nanos rest(Nanos busy, double duty) noexcept {
    return duty < 1 ? static_cast<Nanos>(static_cast<double>(busy) * (1 / duty - 1)) + 1 : 0;
  }

 private:
  static constexpr std::uint64_t kFirst = std::uint64_t{8} << 20;
  static constexpr std::uint64_t kGrowth = 4;
  std::uint64_t most_;
  std::uint64_t slice_;
  double nanos_per_byte_ = 0;  // of the last slice; 0: none yet
};

}  // namespace ckpt::track
