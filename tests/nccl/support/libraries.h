// SPDX-License-Identifier: Apache-2.0
// NCCL and the driver under test, loaded at run time. LD_LIBRARY_PATH selects the libraries.
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <nccl.h>

namespace nccl_test {

struct Nccl {
#define NCCL_FUNCTION(name) decltype(&::name) name = nullptr;
#include "tests/nccl/support/nccl_functions.def"
#undef NCCL_FUNCTION
};

struct Cuda {
#define CUDA_FUNCTION(name) decltype(&::name) name = nullptr;
#include "tests/nccl/support/cuda_functions.def"
#undef CUDA_FUNCTION
};

// These functions return the loaded library, or null if the library does not exist or lacks a function.
const Nccl* load_nccl();
const Cuda* load_cuda();
inline const Nccl& nccl() {
  return *load_nccl();
}
inline const Cuda& cuda() {
  return *load_cuda();
}

}  // namespace nccl_test
