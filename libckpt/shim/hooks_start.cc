// SPDX-License-Identifier: Apache-2.0
// cuInit makes the process a rank of its job.
#include "libckpt/shim/hooks.h"
#include "libckpt/shim/rank/session.h"

namespace ckpt::shim {

CUresult hook::cuInit(unsigned int flags) {
  const CUresult result = real().cuInit(flags);
  if (result == CUDA_SUCCESS) start_rank();
  return result;
}

}  // namespace ckpt::shim
