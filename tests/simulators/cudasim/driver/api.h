// SPDX-License-Identifier: Apache-2.0
// Declarations for the files that define the exported functions: cuda.h with the versioned names, and short
// helpers.
#pragma once

#include <cuda.h>

#include <mutex>
#include <shared_mutex>

#include "tests/simulators/cudasim/driver/memory.h"
#include "tests/simulators/cudasim/driver/process.h"

#define CUDASIM_TRY(call)                                      \
  do {                                                         \
    const CUresult cudasim_result = (call);                    \
    if (cudasim_result != CUDA_SUCCESS) return cudasim_result; \
  } while (false)
#define CUDASIM_CHECK(condition, error) \
  do {                                  \
    if (!(condition)) return (error);   \
  } while (false)

// The functions that the exports (exports.cc) call. Each file of api/ defines some of them.
namespace cudasim::api {
#define CUDASIM_EXPORT(name, base) decltype(::name) base;
#include "cudasim_exports.def"
#undef CUDASIM_EXPORT
}  // namespace cudasim::api

namespace cudasim {

using Exclusive = std::unique_lock<std::shared_mutex>;
using Shared = std::shared_lock<std::shared_mutex>;

inline CUstream to_handle(Stream* stream) {
  return reinterpret_cast<CUstream>(stream);
}
inline Event* from_handle(CUevent event) {
  return reinterpret_cast<Event*>(event);
}
// Returns the function of a library's kernel in the current context (api_library.cc); null if there is none.
Function* function_of_kernel(CUfunction handle);
inline Function* from_handle(CUfunction function) {
  if ((reinterpret_cast<std::uintptr_t>(function) & 1) != 0) return function_of_kernel(function);
  return reinterpret_cast<Function*>(function);
}
// Returns the length of an image in memory, as stored in an ELF object. CUDA_ERROR_INVALID_IMAGE: the memory
// has no ELF image.
CUresult image_bytes(const void* image, std::uint64_t* bytes);
inline Module* from_handle(CUmodule module) {
  return reinterpret_cast<Module*>(module);
}

}  // namespace cudasim
