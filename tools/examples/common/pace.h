// SPDX-License-Identifier: Apache-2.0
// Steps of at least a given length, and the longest gap between the ends of two steps. All state is in one
// plain struct, so that an example can register it as host state. After a move the gap spans the move. The
// clock is CLOCK_BOOTTIME, which two processes of one machine share. Across machines the gap is wrong by the
// difference of the two clocks.
// Threads: one.
#pragma once

#include <cstdint>
#include <string>

namespace ckpt::examples {

struct Pace {
  std::int64_t step_begin_ns = 0;   // the time at which the current step began
  std::int64_t last_end_ns = 0;     // the time at which the last step, or the check after this step, ended
  std::int64_t longest_gap_ns = 0;  // the longest time between the ends of two steps
  std::int64_t longest_gap_step_ns = 0;  // the part of the longest gap that was the second step itself
  std::uint64_t longest_gap_step = 0;    // the number of the second step of the longest gap

  void begin_step();
  // Waits until the step has lasted `min_ns`, and records the end of step `step` of `steps` (0: endless).
  // Tests set $GPUMIGRATE_TEST_HURRY to a file. Until the file exists, the second half of the steps is slow;
  // afterwards no step waits. So a program lasts until its test has finished with it, also on a slow machine,
  // and ends soon afterwards.
  void end_step(std::uint64_t step, std::uint64_t steps, std::int64_t min_ns);
  // Excludes the time since the last step's end from the gaps.
  void forget_gap();
};

// Returns " at 1767225600.123456", in seconds since 1970, for the end of a line. Returns an empty text unless
// `wanted`.
[[nodiscard]] std::string time_note(bool wanted);

}  // namespace ckpt::examples
