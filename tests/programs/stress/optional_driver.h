// SPDX-License-Identifier: Apache-2.0
// The driver functions that a driver may lack (graphs, memory pools, host callbacks), asked for by
// cuGetProcAddress. Each group is tried once, on a stream of its own, to find which of them work here.
// Threads: immutable once made. Needs a current context.
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
  std::vector<std::string> left_out;  // what does not work here: "graphs: CUDA_ERROR_NOT_SUPPORTED"

  static OptionalDriver probe();
};

}  // namespace ckpt::examples
