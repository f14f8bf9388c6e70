// SPDX-License-Identifier: Apache-2.0
// torchlike: trains three small models whose device memory comes from the three allocators that PyTorch has: cached
// segments, expandable segments, the driver's pool (--help). It knows nothing of libckpt. The digest at its end
// depends on --seed and on how many steps there were.
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "tools/examples/common/command_line.h"
#include "tools/examples/common/pace.h"
#include "tools/examples/torchlike/trainer.h"

namespace ckpt::examples {
namespace {

constexpr std::int64_t kNanosPerMs = 1'000'000;

struct Options {
  std::uint32_t steps = 50;
  std::uint32_t step_ms = 0;
  std::uint64_t seed = 1;
  std::string until;  // empty: all steps
};

Options parse_options(int argc, char** argv) {
  CommandLine app("Trains on device memory that is allocated as PyTorch allocates it");
  Options options;
  app.add_option("--steps", options.steps, "How many (50)").in_range(1U, 1U << 30);
  app.add_option("--step-ms", options.step_ms, "How long a step takes at least (0)").in_range(0U, 60'000U);
  app.add_option("--seed", options.seed, "Other seed, other batches (1)");
  app.add_option("--until", options.until, "Ends after the step at which this file is there (never)");
  parse_or_exit(app, argc, argv);
  return options;
}

bool has_come(const std::string& file) {
  return !file.empty() && ::access(file.c_str(), F_OK) == 0;
}

int run(const Options& options) {
  const Gpu gpu;
  CUdevice device = 0;
  check(cuCtxGetDevice(&device), "cuCtxGetDevice");
  const Kernels kernels("torchlike_kernels");
  Trainer cached(kernels, std::make_unique<CachingAllocator>(Backing::kOwn, device), options.seed);
  Trainer expandable(kernels, std::make_unique<CachingAllocator>(Backing::kExpandable, device),
                     options.seed + 1);
  Trainer pooled(kernels, std::make_unique<PoolAllocator>(device), options.seed + 2);
  Pace pace;
  std::uint32_t steps = 0;
  while (steps < options.steps && !has_come(options.until)) {
    const std::uint32_t step = ++steps;
    pace.begin_step();
    for (Trainer* trainer : {&cached, &expandable, &pooled}) trainer->step(step);
    pace.end_step(step, options.steps, options.step_ms * kNanosPerMs);
    std::printf("step %u\n", step);
    std::fflush(stdout);
  }
  Digest digest;
  for (Trainer* trainer : {&cached, &expandable, &pooled}) trainer->add_to(digest);
  const nlohmann::ordered_json result = {{"steps", steps}, {"digest", digest.hex()}};
  std::printf("%s\n", result.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace ckpt::examples

int main(int argc, char** argv) {
  return ckpt::examples::run(ckpt::examples::parse_options(argc, argv));
}
