// SPDX-License-Identifier: Apache-2.0
// Driver functions that a driver may lack (graphs, memory pools, host callbacks), found by cuGetProcAddress.
// Each group is tried once, on its own stream, to find which groups work on this driver.
// Threads: immutable once created. Needs a current context.
#pragma once

#include <cuda.h>

#include <string>
#include <vector>

namespace ckpt::examples {

struct OptionalDriver {
#define STRESS_OPTIONAL(name) decltype(&::name) name = nullptr;
#include "tests/programs/stress/optional_functions.def"

  bool graphs = false;
  bool capture = false;
  bool pools = false;
  bool callbacks = false;
  bool per_thread_stream = false;
  std::vector<std::string> left_out;  // groups that do not work on this driver: "graphs:
                                      // CUDA_ERROR_NOT_SUPPORTED"

  static OptionalDriver probe();
};

}  // namespace ckpt::examples
