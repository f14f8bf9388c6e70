// SPDX-License-Identifier: Apache-2.0
// Hooks of contexts. The program's contexts are known as soon as the program has made them
// (memory/hooks_alloc.cc handles their ends). Its waits for the GPU are outside the gate. They end with the
// quiesce's own wait, so a long wait does not delay closing the gate.
#include "libckpt/inprocess/shim/core/captures.h"
#include "libckpt/inprocess/shim/core/contexts.h"
#include "libckpt/inprocess/shim/core/gate.h"
#include "libckpt/inprocess/shim/core/hooks.h"
#include "libckpt/inprocess/shim/memory/pools.h"

namespace ckpt::shim {
namespace {

template <class... A, class... B>
CUresult make(CUresult (*function)(CUcontext*, A...), CUcontext* context, B... arguments) {
  const CUresult result = function(context, arguments...);
  if (result == CUDA_SUCCESS) note_context(*context);
  return result;
}

template <class... A>
CUresult wait_outside(CUresult (*function)(A...), A... arguments) {
  CUresult result = CUDA_SUCCESS;
  {
    const GateWait wait;
    result = function(arguments...);
  }
  memory_synchronized();
  return result;
}

}  // namespace

namespace hook {

CUresult cuCtxCreate(CUcontext* context, unsigned int flags, CUdevice device) {
  return make(real().cuCtxCreate, context, flags, device);
}

CUresult cuCtxCreate_v2(CUcontext* context, unsigned int flags, CUdevice device) {
  return make(real().cuCtxCreate_v2, context, flags, device);
}

CUresult cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam* parameters, int count, unsigned int flags,
                        CUdevice device) {
  return make(real().cuCtxCreate_v3, context, parameters, count, flags, device);
}

CUresult cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* parameters, unsigned int flags,
                        CUdevice device) {
  return make(real().cuCtxCreate_v4, context, parameters, flags, device);
}

CUresult cuCtxDetach(CUcontext context) {
  EndingCaptures captures(context);
  const CUresult result = real().cuCtxDetach(context);
  if (result != CUDA_SUCCESS) return result;
  captures.ended();
  erase_context(context);
  return result;
}

CUresult cuGreenCtxCreate(CUgreenCtx* context, CUdevResourceDesc resources, CUdevice device,
                          unsigned int flags) {
  const CUresult result = real().cuGreenCtxCreate(context, resources, device, flags);
  if (result == CUDA_SUCCESS) note_green_context(*context);
  return result;
}

CUresult cuGreenCtxDestroy(CUgreenCtx context) {
  CUcontext as_context = nullptr;
  if (real().cuCtxFromGreenCtx != nullptr) real().cuCtxFromGreenCtx(&as_context, context);
  EndingCaptures captures(as_context);
  const CUresult result = real().cuGreenCtxDestroy(context);
  if (result != CUDA_SUCCESS) return result;
  captures.ended();
  erase_green_context(context);
  return result;
}

CUresult cuCtxSynchronize() {
  return wait_outside(real().cuCtxSynchronize);
}

CUresult cuCtxSynchronize_v2(CUcontext context) {
  return wait_outside(real().cuCtxSynchronize_v2, context);
}

CUresult cuStreamSynchronize(CUstream stream) {
  return wait_outside(real().cuStreamSynchronize, stream);
}

CUresult cuStreamSynchronize_ptsz(CUstream stream) {
  return wait_outside(real().cuStreamSynchronize_ptsz, stream);
}

CUresult cuEventSynchronize(CUevent event) {
  return wait_outside(real().cuEventSynchronize, event);
}

}  // namespace hook
}  // namespace ckpt::shim
