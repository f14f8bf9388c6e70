// SPDX-License-Identifier: Apache-2.0
// churn: holds some device memory, and in each step allocates a large block, fills it, checks it and frees it
// again (--help). The peak usage never exceeds the sum of both. This program does not use libckpt.
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tools/common/units.h"
#include "tools/examples/common/command_line.h"
#include "tools/examples/common/gpu.h"
#include "tools/examples/common/pace.h"

namespace ckpt::examples {
namespace {

constexpr std::size_t kWord = sizeof(std::uint32_t);
constexpr std::size_t kMinBytes = 1024;
constexpr std::int64_t kNanosPerMs = 1'000'000;

struct Options {
  std::uint64_t held = 0;
  std::uint64_t block = 0;
  std::uint32_t steps = 100;
  std::uint32_t hold_ms = 20;
};

Options parse_options(int argc, char** argv) {
  CommandLine app("Allocates and frees a large block of device memory in each step, and checks all of it");
  Options options;
  std::string held = "64MiB";
  std::string block = "64MiB";
  app.add_option("--held", held, "Device memory that stays (64MiB)");
  app.add_option("--block", block, "Device memory of one step (64MiB)");
  app.add_option("--steps", options.steps, "How many (100)").in_range(1U, 1U << 30);
  app.add_option("--hold-ms", options.hold_ms, "How long a block lives at least (20)").in_range(0U, 60'000U);
  parse_or_exit(app, argc, argv);
  options.held = value_or_usage("--held", tools::parse_size(held));
  options.block = value_or_usage("--block", tools::parse_size(block));
  if (options.held < kMinBytes || options.block < kMinBytes) fail("at least 1 KiB of each is needed", 64);
  return options;
}

void fill(CUdeviceptr memory, std::uint64_t bytes, std::uint32_t value) {
  check(cuMemsetD32(memory, value, bytes / kWord), "cuMemsetD32");
}

// Returns how many of a sample of words differ from `value`. The sample includes the first and the last word.
std::uint64_t wrong_words(CUdeviceptr memory, std::uint64_t bytes, std::uint32_t value) {
  constexpr std::uint64_t kLooks = 16;
  std::uint64_t wrong = 0;
  const std::uint64_t last = bytes / kWord - 1;
  for (std::uint64_t i = 0; i <= kLooks; ++i) {
    std::uint32_t found = 0;
    download(&found, memory + last * i / kLooks * kWord, kWord);
    if (found != value) ++wrong;
  }
  return wrong;
}

int run(const Options& options) {
  const Gpu gpu;
  const LocalMemory held(options.held);
  std::uint64_t errors = 0;
  Pace pace;
  fill(held.get(), options.held, 0);
  for (std::uint32_t step = 1; step <= options.steps; ++step) {
    pace.begin_step();
    {
      const LocalMemory block(options.block);
      fill(block.get(), options.block, ~step);
      gpu.synchronize();
      errors += wrong_words(held.get(), options.held, step - 1);
      pace.end_step(step, options.steps, options.hold_ms * kNanosPerMs);
      errors += wrong_words(block.get(), options.block, ~step);
    }
    fill(held.get(), options.held, step);
    gpu.synchronize();
    std::printf("step %u errors %llu\n", step, static_cast<unsigned long long>(errors));
    std::fflush(stdout);
  }
  const nlohmann::ordered_json result = {{"steps", options.steps}, {"errors", errors}};
  std::printf("%s\n", result.dump().c_str());
  return errors == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ckpt::examples

int main(int argc, char** argv) {
  return ckpt::examples::run(ckpt::examples::parse_options(argc, argv));
}
