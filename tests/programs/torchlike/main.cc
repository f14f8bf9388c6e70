// SPDX-License-Identifier: Apache-2.0
// torchlike: trains three small models whose device memory comes from PyTorch's three allocators: cached
// segments, expandable segments, and the driver's pool (--help). It does not use libckpt. Its final digest
// depends on --seed and on the number of steps.
#include "tests/programs/common/step_loop.h"
#include "tests/programs/torchlike/trainer.h"

namespace ckpt::examples {
namespace {

int run(const StepOptions& options) {
  const Gpu gpu;
  CUdevice device = 0;
  check(cuCtxGetDevice(&device), "cuCtxGetDevice");
  const Kernels kernels("torchlike_kernels");
  Trainer cached(kernels, std::make_unique<CachingAllocator>(Backing::kOwn, device), options.seed);
  Trainer expandable(kernels, std::make_unique<CachingAllocator>(Backing::kExpandable, device),
                     options.seed + 1);
  Trainer pooled(kernels, std::make_unique<PoolAllocator>(device), options.seed + 2);
  const std::uint32_t steps = run_steps(options, [&](std::uint32_t step) {
    for (Trainer* trainer : {&cached, &expandable, &pooled}) trainer->step(step);
  });
  Digest digest;
  for (Trainer* trainer : {&cached, &expandable, &pooled}) trainer->add_to(digest);
  print_result(steps, digest);
  return 0;
}

}  // namespace
}  // namespace ckpt::examples

int main(int argc, char** argv) {
  return ckpt::examples::run(ckpt::examples::parse_step_options(
      "Trains on device memory that is allocated as PyTorch allocates it", argc, argv));
}
