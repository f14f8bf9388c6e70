// SPDX-License-Identifier: Apache-2.0
#include "tests/programs/common/step_loop.h"

#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "tools/examples/common/command_line.h"
#include "tools/examples/common/pace.h"

namespace ckpt::examples {
namespace {

constexpr std::int64_t kNanosPerMs = 1'000'000;

bool has_come(const std::string& file) {
  return !file.empty() && ::access(file.c_str(), F_OK) == 0;
}

}  // namespace

StepOptions parse_step_options(const char* purpose, int argc, char** argv) {
  CommandLine app(purpose);
  StepOptions options;
  app.add_option("--steps", options.steps, "How many (50)").in_range(1U, 1U << 30);
  app.add_option("--step-ms", options.step_ms, "How long a step takes at least (0)").in_range(0U, 60'000U);
  app.add_option("--seed", options.seed, "Other seed, other batches (1)");
  app.add_option("--until", options.until, "Ends after the step at which this file is there (never)");
  parse_or_exit(app, argc, argv);
  return options;
}

std::uint32_t run_steps(const StepOptions& options, const std::function<void(std::uint32_t)>& step) {
  Pace pace;
  std::uint32_t done = 0;
  while (done < options.steps && !has_come(options.until)) {
    ++done;
    pace.begin_step();
    step(done);
    pace.end_step(done, options.steps, options.step_ms * kNanosPerMs);
    std::printf("step %u\n", done);
    std::fflush(stdout);
  }
  return done;
}

void print_result(std::uint32_t steps, const Digest& digest) {
  const nlohmann::ordered_json result = {{"steps", steps}, {"digest", digest.hex()}};
  std::printf("%s\n", result.dump().c_str());
}

}  // namespace ckpt::examples
