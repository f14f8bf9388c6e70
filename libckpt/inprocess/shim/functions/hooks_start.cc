// SPDX-License-Identifier: Apache-2.0
// cuInit makes the process a rank of its job.
#include "libckpt/inprocess/shim/core/hooks.h"
#include "libckpt/inprocess/shim/rank/session.h"

namespace ckpt::shim {

CUresult hook::cuInit(unsigned int flags) {
  const CUresult result = real().cuInit(flags);
  if (result == CUDA_SUCCESS) start_rank();
  return result;
}

}  // namespace ckpt::shim
