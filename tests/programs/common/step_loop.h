// SPDX-License-Identifier: Apache-2.0
// The loop of an example that works in steps and ends with a digest. On stdout: a line for each step, and JSON at the
// end.
// Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tools/examples/common/digest.h"

namespace ckpt::examples {

struct StepOptions {
  std::uint32_t steps = 50;
  std::uint32_t step_ms = 0;  // a step lasts at least so long
  std::uint64_t seed = 1;
  std::string until;  // ends after the step at which this file is there; empty: all steps
};

// Ends the program after --help (0) and after a mistake (64).
[[nodiscard]] StepOptions parse_step_options(const char* purpose, int argc, char** argv);

// Calls `step` with 1, 2 and so on. Returns the last one's number.
[[nodiscard]] std::uint32_t run_steps(const StepOptions& options,
                                      const std::function<void(std::uint32_t)>& step);

void print_result(std::uint32_t steps, const Digest& digest);

}  // namespace ckpt::examples
