// SPDX-License-Identifier: Apache-2.0
// runtime: a typical program of the CUDA runtime API. nvcc compiles it, and NVIDIA's libcudart is linked
// statically (--help). It does not use libckpt, and links no libcuda. Its final digest depends on
// --seed and on the number of steps. libcudart does not start on the software driver (docs/adr/0044).
#include "tests/programs/common/step_loop.h"
#include "tests/programs/runtime/model.h"

namespace ckpt::examples {
namespace {

int run(const StepOptions& options) {
  Model model(options.seed);
  const std::uint32_t steps = run_steps(options, [&](std::uint32_t) { model.step(); });
  Digest digest;
  model.add_to(digest);
  print_result(steps, digest);
  return 0;
}

}  // namespace
}  // namespace ckpt::examples

int main(int argc, char** argv) {
  return ckpt::examples::run(ckpt::examples::parse_step_options(
      "Works with all that the CUDA runtime API offers a plain program", argc, argv));
}
