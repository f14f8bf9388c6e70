// SPDX-License-Identifier: Apache-2.0
// The sharing of a device between a scan and a job: the size of a launch, and the pause after it. A launch
// delays the job's kernels by about a millisecond at most, whatever the device's speed. The pauses keep the
// scan's share of the time within the duty. Contexts of two processes share a GPU by time slices, so nothing
// else limits a scan.
// Threads: one at a time. Pure arithmetic: no clock, no device. No function fails. Times are nanoseconds.
#pragma once

#include <algorithm>
#include <cstdint>

#include "libckpt/base/clock.h"

namespace ckpt::track {

inline constexpr Nanos kLaunchTarget = 1'000'000;
// The length below which a slice is short. A short slice ends before the waiting thread has started the next
// one. More short slices are therefore queued on the device and run concurrently, so that one slice uses the
// processors that another leaves free. Longer slices would only compete for memory bandwidth.
inline constexpr Nanos kShortSlice = 2'000'000;

// The scanner's use of time since its creation.
struct ScanTimes {
  std::uint64_t launches = 0;
  std::uint64_t slices = 0;  // the number of slices with a duty below 1
  Nanos busy = 0;            // the total time of slices with a duty below 1, from launch to end
  Nanos paused = 0;          // the total pause after slices with a duty below 1
  Nanos longest_slice = 0;   // the duration of the longest slice with a duty below 1
};

class ScanPace {
 public:
  // Creates a pace. `limit` is the size of a launch when the scan has the device for itself.
  explicit ScanPace(std::uint64_t limit) : limit_(limit), slice_(std::min(limit, kFirst)) {}

  // Returns the bytes of the next launch. With a duty of 1 no job is delayed, and long launches lose less
  // time at their ends.
  [[nodiscard]] std::uint64_t slice_bytes(double duty) const noexcept { return duty < 1 ? slice_ : limit_; }

  // Notes a launch over `bytes` that took `took` while the job ran. The next launch has the size that fits
  // into kLaunchTarget at that rate. The size grows in steps, since the first time of a fast device is mostly
  // the launch itself.
  void measured(std::uint64_t bytes, Nanos took) noexcept {
    const double fitting = static_cast<double>(bytes) * static_cast<double>(kLaunchTarget) /
                           static_cast<double>(std::max<Nanos>(took, 1));
    const std::uint64_t grown = slice_ <= limit_ / kGrowth ? slice_ * kGrowth : limit_;
    slice_ = fitting < static_cast<double>(grown)
                 ? std::max<std::uint64_t>(static_cast<std::uint64_t>(fitting), 1)
                 : grown;
  }

  // Notes the time of a slice in a sequence of slices, from its launch or from the end of the previous slice.
  void delivered(std::uint64_t bytes, Nanos took) noexcept {
    nanos_per_byte_ = static_cast<double>(took) / static_cast<double>(std::max<std::uint64_t>(bytes, 1));
  }
  // Returns whether slices with the device for themselves are shorter than kShortSlice, by the last slice's
  // rate. Returns false before the first slice.
  [[nodiscard]] bool short_slices() const noexcept {
    return nanos_per_byte_ > 0 &&
           nanos_per_byte_ * static_cast<double>(limit_) < static_cast<double>(kShortSlice);
  }

  // Returns the pause that must follow a slice of the duration `busy`.
  [[nodiscard]] static Nanos pause_after(Nanos busy, double duty) noexcept {
    return duty < 1 ? static_cast<Nanos>(static_cast<double>(busy) * (1 / duty - 1)) + 1 : 0;
  }

 private:
  static constexpr std::uint64_t kFirst = std::uint64_t{8} << 20;
  static constexpr std::uint64_t kGrowth = 4;
  std::uint64_t limit_;
  std::uint64_t slice_;
  double nanos_per_byte_ = 0;  // the time per byte of the last slice; 0 if there is none yet
};

}  // namespace ckpt::track
