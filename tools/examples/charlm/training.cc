// SPDX-License-Identifier: Apache-2.0
#include "tools/examples/charlm/training.h"

#include <unistd.h>

#include <cstdio>

namespace ckpt::examples {

void add_training_options(Command& app, TrainingOptions& options) {
  app.add_option(
      "--text", options.text,
      "The text to learn (the licence texts under /usr/share/common-licenses, or those of the bundle)");
  app.add_option("--params", options.parameters, "Approximate number of parameters (100000)").not_negative();
  app.add_option("--steps", options.steps, "Steps to train (1000)").not_negative();
  app.add_option("--until", options.until, "End after the step during which this file exists");
  app.add_option("--seed", options.seed, "Seed of weights and batches (1)").not_negative();
  app.add_option("--step-ms", options.step_ms, "Minimum duration of a step in milliseconds (0)");
  app.add_option("--print-every", options.print_every, "Print step and loss every N steps (50); 0: never")
      .not_negative();
  add_common_options(app, options.common);
}

void check_training_options(const TrainingOptions& options) {
  if (options.parameters < 1000 || options.parameters > 10'000'000'000)
    fail("--params must be from 1000 to 10000000000", kUsage);
  if (!(options.step_ms >= 0) || options.step_ms > 3.6e6) fail("--step-ms must be from 0 to 3600000", kUsage);
}

bool Progress::is_asked_to_end(const TrainingOptions& options) {
  return !options.until.empty() && ::access(options.until.c_str(), F_OK) == 0;
}

void Progress::end_step(double loss, const TrainingOptions& options) {
  step++;
  mean_loss = step == 1 ? loss : mean_loss + (loss - mean_loss) / 50;
  pace.end_step(step, options.steps, static_cast<std::int64_t>(options.step_ms * 1e6));
  if (options.print_every == 0 || step % options.print_every != 0) return;
  std::printf("step %llu loss %.4f%s\n", static_cast<unsigned long long>(step), mean_loss,
              time_note(options.common.print_times).c_str());
  std::fflush(stdout);
}

nlohmann::ordered_json Progress::result(const std::string& digest, std::uint64_t parameters) const {
  return {{"digest", digest},
          {"steps", step},
          {"loss", mean_loss},
          {"parameters", parameters},
          {"moves", moves},
          {"longest_gap_ms", static_cast<double>(pace.longest_gap_ns) / 1e6},
          {"longest_gap_step_ms", static_cast<double>(pace.longest_gap_step_ns) / 1e6}};
}

}  // namespace ckpt::examples
