// SPDX-License-Identifier: Apache-2.0
// cuGetProcAddress. The real driver decides which version of a function the program gets (its CUDA version,
// legacy or per-thread streams), and whether the function exists. The shim then returns its own function
// instead.
#include "libckpt/inprocess/shim/core/hooks.h"
#include "libckpt/inprocess/shim/functions/exports.h"

namespace ckpt::shim {
namespace {

void put_own(const char* symbol, void** function) {
  if (symbol != nullptr && function != nullptr && *function != nullptr)
    *function = exported_for(*function, symbol);
}

}  // namespace

CUresult hook::cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags) {
  const CUresult result = real().cuGetProcAddress(symbol, function, version, flags);
  if (result == CUDA_SUCCESS) put_own(symbol, function);
  return result;
}

CUresult hook::cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                                   CUdriverProcAddressQueryResult* status) {
  const CUresult result = real().cuGetProcAddress_v2(symbol, function, version, flags, status);
  if (result == CUDA_SUCCESS) put_own(symbol, function);
  return result;
}

}  // namespace ckpt::shim
