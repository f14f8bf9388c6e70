// SPDX-License-Identifier: Apache-2.0
// Steps of at least a given length, and the longest gap between the ends of two of them. All of it lies in
// one plain struct, so that an example can register it as host state. After a move the gap spans the move.
// The clock is CLOCK_BOOTTIME, which two processes of one machine share; across machines the gap is off by
// the difference of the two clocks. Threads: one.
#pragma once

#include <cstdint>
#include <string>

namespace ckpt::examples {

struct Pace {
  std::int64_t step_begin_ns = 0;        // when the current step began
  std::int64_t last_end_ns = 0;          // when the last step ended, or checking after it did
  std::int64_t longest_gap_ns = 0;       // between the ends of two steps
  std::int64_t longest_gap_step_ns = 0;  // the part of it that was the second step itself
  std::uint64_t longest_gap_step = 0;    // the number of that step

  void begin_step();
  // Waits until the step has lasted `min_ns`, then takes its end as that of step `step` of `steps` (0: endless).
  // Tests set $GPUMIGRATE_TEST_HURRY to a file: until it exists, the second half of the steps is slow; then no
  // step waits. So a program lasts until its test is done with it, on a slow machine, too, and ends soon after.
  void end_step(std::uint64_t step, std::uint64_t steps, std::int64_t min_ns);
  // Leaves the time since the last step's end out of the gaps.
  void forget_gap();
};

// " at 1767225600.123456", seconds since 1970, to go to the end of a line; empty unless `wanted`.
[[nodiscard]] std::string time_note(bool wanted);

}  // namespace ckpt::examples
