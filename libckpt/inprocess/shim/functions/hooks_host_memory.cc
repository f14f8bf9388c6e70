// SPDX-License-Identifier: Apache-2.0
// Hooks of host memory that the program passes to the driver. From then on a device may write it at any time,
// so a move must not assume that its pages are unchanged (job_state.h).
#include "libckpt/inprocess/shim/core/hooks.h"
#include "libckpt/inprocess/shim/core/job_state.h"

namespace ckpt::shim::hook {

CUresult cuMemHostRegister(void* memory, size_t bytes, unsigned int flags) {
  const CUresult result = real().cuMemHostRegister(memory, bytes, flags);
  if (result == CUDA_SUCCESS) devices_may_write(bytes);
  return result;
}

CUresult cuMemHostRegister_v2(void* memory, size_t bytes, unsigned int flags) {
  const CUresult result = real().cuMemHostRegister_v2(memory, bytes, flags);
  if (result == CUDA_SUCCESS) devices_may_write(bytes);
  return result;
}

}  // namespace ckpt::shim::hook
