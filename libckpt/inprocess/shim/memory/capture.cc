// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/shim/memory/capture.h"

#include "libckpt/inprocess/shim/core/hooks.h"
#include "libckpt/inprocess/shim/memory/call_real.h"

namespace ckpt::shim {
namespace {

// The default stream that a null handle means: the legacy stream, or the thread's own stream.
enum class NullStream { kLegacy, kThread };

CaptureOrigin origin_of(CUstream stream, NullStream null) {
  CaptureOrigin origin{stream, nullptr};
  if (stream == nullptr && null == NullStream::kThread) origin.stream = CU_STREAM_PER_THREAD;
  const bool has_handle = stream != nullptr && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD;
  if (!has_handle || call_real(real().cuStreamGetCtx, stream, &origin.context) != CUDA_SUCCESS)
    call_real(real().cuCtxGetCurrent, &origin.context);
  return origin;
}

template <class Function, class... Arguments>
CUresult begin(Function* function, NullStream null, CUstream stream, Arguments... arguments) {
  capture_begins();
  const CUresult result = call_real(function, stream, arguments...);
  if (result == CUDA_SUCCESS) {
    note_capture(origin_of(stream, null));
  } else {
    capture_ended();
  }
  return result;
}

// Returns whether a capture continues after a call to end it has failed. The capture may be over (its content
// was not valid), or another thread must end it.
bool goes_on(const CaptureOrigin& origin) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return call_real(real().cuStreamIsCapturing, origin.stream, &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

CUresult end(decltype(&::cuStreamEndCapture) function, NullStream null, CUstream stream, CUgraph* graph) {
  const CaptureOrigin origin = origin_of(stream, null);
  const CUresult result = call_real(function, stream, graph);
  if (result == CUDA_SUCCESS || !goes_on(origin)) end_capture(origin);
  return result;
}

CUresult destroy(decltype(&::cuStreamDestroy) function, CUstream stream) {
  EndingCaptures ending(stream);
  const CUresult result = call_real(function, stream);
  if (result == CUDA_SUCCESS) ending.ended();
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
  return begin(real().cuStreamBeginCapture, NullStream::kLegacy, stream);
}

CUresult cuStreamBeginCapture_ptsz(CUstream stream) {
  return begin(real().cuStreamBeginCapture_ptsz, NullStream::kThread, stream);
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return begin(real().cuStreamBeginCapture_v2, NullStream::kLegacy, stream, mode);
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode) {
  return begin(real().cuStreamBeginCapture_v2_ptsz, NullStream::kThread, stream, mode);
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode* dependencies,
                                     const CUgraphEdgeData* edges, size_t count, CUstreamCaptureMode mode) {
  return begin(real().cuStreamBeginCaptureToGraph, NullStream::kLegacy, stream, graph, dependencies, edges,
               count, mode);
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode* dependencies,
                                          const CUgraphEdgeData* edges, size_t count,
                                          CUstreamCaptureMode mode) {
  return begin(real().cuStreamBeginCaptureToGraph_ptsz, NullStream::kThread, stream, graph, dependencies,
               edges, count, mode);
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return end(real().cuStreamEndCapture, NullStream::kLegacy, stream, graph);
}

CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph* graph) {
  return end(real().cuStreamEndCapture_ptsz, NullStream::kThread, stream, graph);
}

CUresult cuStreamDestroy(CUstream stream) {
  return destroy(real().cuStreamDestroy, stream);
}

CUresult cuStreamDestroy_v2(CUstream stream) {
  return destroy(real().cuStreamDestroy_v2, stream);
}

}  // namespace hook
}  // namespace ckpt::shim
