// SPDX-License-Identifier: Apache-2.0
// Stream capture.
#include "tests/simulators/cudasim/driver/api.h"
#include "tests/simulators/cudasim/driver/capture.h"

namespace cudasim {
namespace {

CUresult enter_capture(CUstream handle, Context** context, Stream** stream) {
  // A stream of the default kind cannot capture. A query of a default stream while other streams capture is a
  // separate error.
  if (handle == nullptr && !null_stream_is_per_thread()) CUDASIM_TRY(enter(context));
  return enter_stream(handle, context, stream);
}

bool is_mode(CUstreamCaptureMode mode) {
  return mode == CU_STREAM_CAPTURE_MODE_GLOBAL || mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL ||
         mode == CU_STREAM_CAPTURE_MODE_RELAXED;
}

struct CaptureInfo {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
};

CUresult info_of(CUstream handle, Stream** stream, CaptureInfo* info) {
  Context* context = nullptr;
  CUDASIM_TRY(enter_capture(handle, &context, stream));
  std::lock_guard<std::mutex> lock(graphs_lock());
  const Capture* capture = (*stream)->capture;
  if (capture == nullptr) return CUDA_SUCCESS;
  info->status = capture->valid ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
  info->id = capture->id;
  info->graph = to_handle(capture->graph.get());
  return CUDA_SUCCESS;
}

CUresult get_info(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                  const CUgraphNode** needs, const CUgraphEdgeData** edges, std::size_t* count) {
  Stream* stream = nullptr;
  CaptureInfo info;
  CUDASIM_CHECK(status != nullptr, CUDA_ERROR_INVALID_VALUE);
  CUDASIM_TRY(info_of(handle, &stream, &info));
  *status = info.status;
  if (info.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  if (id != nullptr) *id = info.id;
  if (graph != nullptr) *graph = info.graph;
  // The result is the stream's own list. It is valid until the next call on the stream, as with the real
  // driver.
  if (needs != nullptr) *needs = reinterpret_cast<const CUgraphNode*>(stream->capture_tail.data());
  if (edges != nullptr) *edges = nullptr;
  if (count != nullptr) *count = stream->capture_tail.size();
  return CUDA_SUCCESS;
}

CUresult update_needs(CUstream handle, CUgraphNode* nodes, std::size_t count, unsigned flags) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  CUDASIM_TRY(enter_capture(handle, &context, &stream));
  std::lock_guard<std::mutex> lock(graphs_lock());
  Capture* capture = stream->capture;
  CUDASIM_CHECK(capture != nullptr, CUDA_ERROR_ILLEGAL_STATE);
  CUDASIM_CHECK(count == 0 || nodes != nullptr, CUDA_ERROR_INVALID_VALUE);
  CUDASIM_CHECK(flags <= CU_STREAM_SET_CAPTURE_DEPENDENCIES, CUDA_ERROR_INVALID_VALUE);
  std::vector<Node*> given;
  for (std::size_t i = 0; i < count; i++) {
    Node* node = from_handle(nodes[i]);
    CUDASIM_CHECK(graphs().nodes.count(node) > 0 && node->graph == capture->graph.get(),
                  CUDA_ERROR_INVALID_VALUE);
    given.push_back(node);
  }
  if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) stream->capture_tail.clear();
  stream->capture_tail.insert(stream->capture_tail.end(), given.begin(), given.end());
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace cudasim

namespace cudasim::api {

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  CUDASIM_CHECK(handle != CU_STREAM_LEGACY && (handle != nullptr || null_stream_is_per_thread()),
                CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CUDASIM_TRY(enter_stream(handle, &context, &stream));
  CUDASIM_CHECK(is_mode(mode), CUDA_ERROR_INVALID_VALUE);
  std::lock_guard<std::mutex> lock(graphs_lock());
  return begin_capture(stream, mode, nullptr, {});
}

CUresult cuStreamBeginCapture(CUstream stream) {
  return api::cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamBeginCaptureToGraph(CUstream handle, CUgraph graph, const CUgraphNode* nodes,
                                     const CUgraphEdgeData* edges, std::size_t count,
                                     CUstreamCaptureMode mode) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  CUDASIM_CHECK(handle != CU_STREAM_LEGACY && (handle != nullptr || null_stream_is_per_thread()),
                CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CUDASIM_TRY(enter_stream(handle, &context, &stream));
  CUDASIM_CHECK(is_mode(mode) && (count == 0 || nodes != nullptr), CUDA_ERROR_INVALID_VALUE);
  CUDASIM_CHECK(edges == nullptr, CUDA_ERROR_NOT_SUPPORTED);
  std::lock_guard<std::mutex> lock(graphs_lock());
  const auto found = graphs().owned.find(from_handle(graph));
  CUDASIM_CHECK(found != graphs().owned.end(), CUDA_ERROR_INVALID_VALUE);
  std::vector<Node*> needs;
  for (std::size_t i = 0; i < count; i++) {
    needs.push_back(from_handle(nodes[i]));
    CUDASIM_CHECK(graphs().nodes.count(needs.back()) > 0 && needs.back()->graph == found->first,
                  CUDA_ERROR_INVALID_VALUE);
  }
  return begin_capture(stream, mode, found->second, needs);
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph* out) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  CUDASIM_TRY(enter_capture(handle, &context, &stream));
  CUDASIM_CHECK(out != nullptr, CUDA_ERROR_INVALID_VALUE);
  std::lock_guard<std::mutex> lock(graphs_lock());
  return end_capture(stream, out);
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  Stream* stream = nullptr;
  CaptureInfo info;
  CUDASIM_CHECK(status != nullptr, CUDA_ERROR_INVALID_VALUE);
  CUDASIM_TRY(info_of(handle, &stream, &info));
  *status = info.status;
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id) {
  return get_info(stream, status, id, nullptr, nullptr, nullptr, nullptr);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** needs, std::size_t* count) {
  return get_info(stream, status, id, graph, needs, nullptr, count);
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** needs, const CUgraphEdgeData** edges,
                                   std::size_t* count) {
  return get_info(stream, status, id, graph, needs, edges, count);
}

CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode* nodes, std::size_t count,
                                           unsigned int flags) {
  return update_needs(stream, nodes, count, flags);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode* nodes,
                                              const CUgraphEdgeData* edges, std::size_t count,
                                              unsigned int flags) {
  CUDASIM_CHECK(edges == nullptr, CUDA_ERROR_NOT_SUPPORTED);
  return update_needs(stream, nodes, count, flags);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  CUDASIM_TRY(Process::get().ready());
  CUDASIM_CHECK(mode != nullptr && is_mode(*mode), CUDA_ERROR_INVALID_VALUE);
  *mode = exchange_thread_mode(*mode);
  return CUDA_SUCCESS;
}

}  // namespace cudasim::api
