// SPDX-License-Identifier: Apache-2.0
#include "libckpt/shim/memory/capture.h"

#include "libckpt/shim/hooks.h"
#include "libckpt/shim/memory/call_real.h"

namespace ckpt::shim {
namespace {

template <class Function, class... Arguments>
CUresult begin(Function* function, Arguments... arguments) {
  capture_begins();
  const CUresult result = call_real(function, arguments...);
  if (result != CUDA_SUCCESS) capture_ended();
  return result;
}

// These leave the capture as it was; after all others it is over.
bool goes_on(CUresult result) {
  return result == CUDA_ERROR_ILLEGAL_STATE || result == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD ||
         result == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
}

CUresult ended(CUresult result) {
  if (!goes_on(result)) capture_ended();
  return result;
}

}  // namespace

CUresult ask_beside_capture(const RealDriver& driver) {
  CUdeviceptr memory = 0;
  const CUresult result = driver.cuMemAlloc_v2(&memory, 1);
  return result == CUDA_SUCCESS ? driver.cuMemFree_v2(memory) : result;
}

namespace hook {

CUresult cuStreamBeginCapture(CUstream stream) {
  return begin(real().cuStreamBeginCapture, stream);
}

CUresult cuStreamBeginCapture_ptsz(CUstream stream) {
  return begin(real().cuStreamBeginCapture_ptsz, stream);
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return begin(real().cuStreamBeginCapture_v2, stream, mode);
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode) {
  return begin(real().cuStreamBeginCapture_v2_ptsz, stream, mode);
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode* dependencies,
                                     const CUgraphEdgeData* edges, size_t count, CUstreamCaptureMode mode) {
  return begin(real().cuStreamBeginCaptureToGraph, stream, graph, dependencies, edges, count, mode);
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode* dependencies,
                                          const CUgraphEdgeData* edges, size_t count,
                                          CUstreamCaptureMode mode) {
  return begin(real().cuStreamBeginCaptureToGraph_ptsz, stream, graph, dependencies, edges, count, mode);
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return ended(call_real(real().cuStreamEndCapture, stream, graph));
}

CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph* graph) {
  return ended(call_real(real().cuStreamEndCapture_ptsz, stream, graph));
}

}  // namespace hook
}  // namespace ckpt::shim
