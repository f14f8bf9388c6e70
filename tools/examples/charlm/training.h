// SPDX-License-Identifier: Apache-2.0
// Options and progress of a training, for charlm, charlm-dp and pipeline.
// Threads: one. Errors: one line that names the option, then the program exits with code 64.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "tools/examples/charlm/batches.h"
#include "tools/examples/common/command_line.h"
#include "tools/examples/common/pace.h"

namespace ckpt::examples {

struct TrainingOptions {
  std::string text;
  std::uint64_t parameters = 100'000;
  std::uint64_t steps = 1000;
  std::uint64_t seed = 1;
  std::uint64_t print_every = 50;
  double step_ms = 0;
  std::string until;  // a file whose existence makes the program exit; empty: none
  CommonOptions common;
};

void add_training_options(Command& app, TrainingOptions& options);
void check_training_options(const TrainingOptions& options);

// Host state that moves with the job: plain data.
struct Progress {
  std::uint64_t step = 0;
  Batches batches;
  double mean_loss = 0;  // mean over about the last 50 steps
  std::uint64_t moves = 0;
  bool was_asked_to_end = false;  // true once the file given by --until exists, which is checked after each
                                  // counted step
  Pace pace;

  // Returns whether the file given by --until exists.
  [[nodiscard]] static bool is_asked_to_end(const TrainingOptions& options);
  [[nodiscard]] bool is_over(const TrainingOptions& options) const {
    return was_asked_to_end || step >= options.steps;
  }
  // Counts the step, updates the mean loss and waits until the step has its minimum length. Prints the step
  // if a line is due.
  void end_step(double loss, const TrainingOptions& options);
  // Returns the program's last line.
  [[nodiscard]] nlohmann::ordered_json result(const std::string& digest, std::uint64_t parameters) const;
};

}  // namespace ckpt::examples
