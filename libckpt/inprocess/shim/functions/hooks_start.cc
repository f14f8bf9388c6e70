// SPDX-License-Identifier: Apache-2.0
// Hooks of the start. After cuInit the first context makes the process a rank of its job, because many
// processes only query the driver for a GPU.
#include <cstdlib>

#include "libckpt/inprocess/shim/core/contexts.h"
#include "libckpt/inprocess/shim/core/hooks.h"
#include "libckpt/inprocess/shim/core/job_state.h"
#include "libckpt/inprocess/shim/rank/session.h"

namespace ckpt::shim {

CUresult hook::cuInit(unsigned int flags) {
  const CUresult result = real().cuInit(flags);
  if (result != CUDA_SUCCESS) return result;
  // The driver loads the profiler, and refuses a checkpoint with it.
  const char* profiler = std::getenv("CUDA_INJECTION64_PATH");
  if (profiler != nullptr && profiler[0] != '\0') not_movable("a profiler (CUDA_INJECTION64_PATH)");
  prepare_rank();
  at_first_context(start_rank);
  return result;
}

}  // namespace ckpt::shim
