// SPDX-License-Identifier: Apache-2.0
#include "tests/nccl/support/libraries.h"

#include <dlfcn.h>

#include <cstdio>

namespace nccl_test {
namespace {

template <typename T>
bool find(void* library, const char* name, T* out) {
  *out = reinterpret_cast<T>(::dlsym(library, name));
  if (*out == nullptr) std::fprintf(stderr, "there is no %s\n", name);
  return *out != nullptr;
}

const Nccl* load_nccl_once() {
  void* library = ::dlopen("libnccl.so.2", RTLD_NOW);
  if (library == nullptr) return nullptr;
  static Nccl functions;
#define NCCL_FUNCTION(name) \
  if (!find(library, #name, &functions.name)) return nullptr;
#include "tests/nccl/support/nccl_functions.def"
#undef NCCL_FUNCTION
  return &functions;
}

const Cuda* load_cuda_once() {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return nullptr;
  static Cuda functions;
#define CUDA_FUNCTION(name) \
  if (!find(library, #name, &functions.name)) return nullptr;
#include "tests/nccl/support/cuda_functions.def"
#undef CUDA_FUNCTION
  return functions.cuInit(0) == CUDA_SUCCESS ? &functions : nullptr;
}

}  // namespace

const Nccl* load_nccl() {
  static const Nccl* functions = load_nccl_once();
  return functions;
}

const Cuda* load_cuda() {
  static const Cuda* functions = load_cuda_once();
  return functions;
}

}  // namespace nccl_test
