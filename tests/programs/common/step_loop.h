// SPDX-License-Identifier: Apache-2.0
// The loop of an example that works in steps and ends with a digest. The output on stdout is a line for each
// step, and JSON at the end.
// Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tools/examples/common/digest.h"

namespace ckpt::examples {

struct StepOptions {
  std::uint32_t steps = 50;
  std::uint32_t step_ms = 0;  // minimum duration of a step in ms
  std::uint64_t seed = 1;
  std::string until;  // the program exits after the step at which this file exists; empty: all steps
};

// Parses the options. Exits with code 0 after --help, and with code 64 after a mistake.
[[nodiscard]] StepOptions parse_step_options(const char* purpose, int argc, char** argv);

// Calls `step` with 1, 2 and so on. Returns the number of the last step.
[[nodiscard]] std::uint32_t run_steps(const StepOptions& options,
                                      const std::function<void(std::uint32_t)>& step);

void print_result(std::uint32_t steps, const Digest& digest);

}  // namespace ckpt::examples
