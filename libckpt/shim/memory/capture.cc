// SPDX-License-Identifier: Apache-2.0
#include "libckpt/shim/memory/capture.h"

#include <atomic>

#include "libckpt/shim/hooks.h"
#include "libckpt/shim/memory/call_real.h"

namespace ckpt::shim {
namespace {

std::atomic<int> open_captures{0};

CUresult began(CUresult result) {
  if (result == CUDA_SUCCESS) capture_began();
  return result;
}

// A capture is over whatever the answer is, unless the stream was not captured at all.
CUresult ended(CUresult result) {
  if (result != CUDA_ERROR_ILLEGAL_STATE) capture_ended();
  return result;
}

}  // namespace

void capture_began() noexcept {
  open_captures.fetch_add(1, std::memory_order_relaxed);
}

void capture_ended() noexcept {
  int before = open_captures.load(std::memory_order_relaxed);
  while (before > 0 && !open_captures.compare_exchange_weak(before, before - 1, std::memory_order_relaxed)) {
  }
}

bool captures_open() noexcept {
  return open_captures.load(std::memory_order_relaxed) > 0;
}

CUresult ask_beside_capture(const RealDriver& driver) {
  CUdeviceptr memory = 0;
  const CUresult result = driver.cuMemAlloc_v2(&memory, 1);
  return result == CUDA_SUCCESS ? driver.cuMemFree_v2(memory) : result;
}

namespace hook {

CUresult cuStreamBeginCapture(CUstream stream) {
  return began(call_real(real().cuStreamBeginCapture, stream));
}

CUresult cuStreamBeginCapture_ptsz(CUstream stream) {
  return began(call_real(real().cuStreamBeginCapture_ptsz, stream));
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return began(call_real(real().cuStreamBeginCapture_v2, stream, mode));
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode) {
  return began(call_real(real().cuStreamBeginCapture_v2_ptsz, stream, mode));
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode* dependencies,
                                     const CUgraphEdgeData* edges, size_t count, CUstreamCaptureMode mode) {
  return began(
      call_real(real().cuStreamBeginCaptureToGraph, stream, graph, dependencies, edges, count, mode));
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode* dependencies,
                                          const CUgraphEdgeData* edges, size_t count,
                                          CUstreamCaptureMode mode) {
  return began(
      call_real(real().cuStreamBeginCaptureToGraph_ptsz, stream, graph, dependencies, edges, count, mode));
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return ended(call_real(real().cuStreamEndCapture, stream, graph));
}

CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph* graph) {
  return ended(call_real(real().cuStreamEndCapture_ptsz, stream, graph));
}

}  // namespace hook
}  // namespace ckpt::shim
