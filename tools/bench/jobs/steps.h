// SPDX-License-Identifier: Apache-2.0
// Lines that the examples print while they run: "step 12 ...", "request 12 ...", with --print-times "... at
// 1767225600.123456".
// Threads: pure functions. Other lines are passed over.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace ckpt::bench {

struct StepLine {
  std::uint64_t step = 0;
  double time = 0;  // wall clock, seconds; 0 if the line has none
};

std::optional<StepLine> parse_step(std::string_view line);
std::vector<StepLine> parse_steps(std::string_view log);

// Steps per second between the first and the last step that ended within [from, to]; 0 if there are less than
// two.
double step_rate(const std::vector<StepLine>& steps, double from, double to);

}  // namespace ckpt::bench
