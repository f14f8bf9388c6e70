// SPDX-License-Identifier: Apache-2.0
// The lines that the examples print while they run: "step 12 ...", "request 12 ...", with --print-times "...
// at 1767225600.123456".
// Threads: pure functions. Other lines are ignored.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace ckpt::bench {

struct StepLine {
  std::uint64_t step = 0;
  double time = 0;  // wall clock in seconds; 0: the line has no time
};

std::optional<StepLine> parse_step(std::string_view line);
std::vector<StepLine> parse_steps(std::string_view log);

// Returns the steps per second between the first and the last step that ended within [from, to]. Returns 0
// for fewer than two steps.
double step_rate(const std::vector<StepLine>& steps, double from, double to);

}  // namespace ckpt::bench
