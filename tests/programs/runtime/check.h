// SPDX-License-Identifier: Apache-2.0
// Checks results of the runtime API: the first failure ends the program.
// Threads: any.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "tools/examples/common/fail.h"

namespace ckpt::examples {

inline void check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  fail(std::string(what) + " failed: " + cudaGetErrorName(result) + " (" +
       std::to_string(static_cast<int>(result)) + "): " + cudaGetErrorString(result));
}

}  // namespace ckpt::examples
