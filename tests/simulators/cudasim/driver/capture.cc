// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/cudasim/driver/capture.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "tests/simulators/cudasim/driver/api.h"

namespace cudasim {
namespace {

std::atomic<int> active{0};
thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

std::set<Capture*>& captures() {
  static auto* all = new std::set<Capture*>;
  return *all;
}

void end(Capture* capture) {
  for (Stream* stream : capture->streams) {
    stream->capture = nullptr;
    stream->capture_tail.clear();
  }
  captures().erase(capture);
  active--;
  delete capture;
}

CUgraphNodeType type_of(const Work& work) {
  constexpr CUgraphNodeType kTypes[] = {
      CU_GRAPH_NODE_TYPE_EMPTY,      CU_GRAPH_NODE_TYPE_MEMCPY,    CU_GRAPH_NODE_TYPE_MEMSET,
      CU_GRAPH_NODE_TYPE_KERNEL,     CU_GRAPH_NODE_TYPE_HOST,      CU_GRAPH_NODE_TYPE_EVENT_RECORD,
      CU_GRAPH_NODE_TYPE_WAIT_EVENT, CU_GRAPH_NODE_TYPE_MEM_ALLOC, CU_GRAPH_NODE_TYPE_MEM_FREE};
  return kTypes[work.index()];
}

// Returns all nodes that `tail` depends on, including `tail`.
std::set<const Node*> behind(const std::vector<Node*>& tail) {
  std::set<const Node*> seen;
  std::vector<const Node*> open(tail.begin(), tail.end());
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    if (seen.insert(node).second) open.insert(open.end(), node->needs.begin(), node->needs.end());
  }
  return seen;
}

bool joined(const Capture& capture) {
  const std::set<const Node*> reached = behind(capture.origin->capture_tail);
  return std::all_of(capture.streams.begin(), capture.streams.end(), [&](const Stream* stream) {
    return std::all_of(stream->capture_tail.begin(), stream->capture_tail.end(),
                       [&](const Node* node) { return reached.count(node) > 0; });
  });
}

void add_needs(std::vector<Node*>* tail, const std::vector<Node*>& more) {
  for (Node* node : more) {
    if (std::find(tail->begin(), tail->end(), node) == tail->end()) tail->push_back(node);
  }
}

}  // namespace

CUresult begin_capture(Stream* stream, CUstreamCaptureMode mode, const std::shared_ptr<GraphBody>& into,
                       const std::vector<Node*>& needs) {
  static std::uint64_t next_id = 1;
  CUDASIM_CHECK(stream->slot != 0, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CUDASIM_CHECK(stream->capture == nullptr, CUDA_ERROR_ILLEGAL_STATE);
  auto* capture = new Capture;
  capture->id = next_id++;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->origin = stream;
  capture->streams = {stream};
  capture->into_given_graph = into != nullptr;
  capture->graph = into != nullptr ? into : make_graph();
  stream->capture_tail = needs;
  captures().insert(capture);
  active++;
  stream->capture = capture;
  return CUDA_SUCCESS;
}

CUresult end_capture(Stream* stream, CUgraph* out) {
  Capture* capture = stream->capture;
  *out = nullptr;
  CUDASIM_CHECK(capture != nullptr, CUDA_ERROR_ILLEGAL_STATE);
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != std::this_thread::get_id())
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  if (capture->origin != stream) {
    capture->valid = false;
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  CUresult result = CUDA_SUCCESS;
  if (!capture->valid)
    result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  else if (!joined(*capture))
    result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  if (result == CUDA_SUCCESS)
    *out = capture->into_given_graph ? to_handle(capture->graph.get()) : give_graph(capture->graph);
  end(capture);
  return result;
}

void invalidate(Stream* stream) {
  std::lock_guard<std::mutex> lock(graphs_lock());
  if (stream->capture != nullptr) stream->capture.load()->valid = false;
}

void leave_capture(Stream* stream) {
  if (stream->capture == nullptr) return;
  std::lock_guard<std::mutex> lock(graphs_lock());
  Capture* capture = stream->capture;
  if (capture == nullptr) return;
  capture->valid = false;
  if (capture->origin == stream) return end(capture);
  capture->streams.erase(stream);
  stream->capture = nullptr;
  stream->capture_tail.clear();
}

void end_dead_captures() {
  if (active.load() == 0) return;
  std::lock_guard<std::mutex> lock(graphs_lock());
  const std::set<Capture*> all = captures();
  for (Capture* capture : all) {
    if (!capture->origin->alive) end(capture);
  }
}

CUresult allow_wait(Stream* stream) {
  if (stream->capture == nullptr) return CUDA_SUCCESS;
  invalidate(stream);
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult capture_work(Stream* stream, Work work) {
  std::lock_guard<std::mutex> lock(graphs_lock());
  Capture* capture = stream->capture;
  CUDASIM_CHECK(capture != nullptr && capture->valid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  const CUgraphNodeType type = type_of(work);
  Node* node = capture->graph->add(type, std::move(work), stream->capture_tail);
  if (const auto* made = std::get_if<AllocateWork>(&node->work))
    node->memory = make_graph_memory(made->address, made->bytes);
  stream->capture_tail = {node};
  return CUDA_SUCCESS;
}

CUresult capture_record(Stream* stream, Event* event) {
  std::lock_guard<std::mutex> lock(graphs_lock());
  Capture* capture = stream->capture;
  CUDASIM_CHECK(capture != nullptr && capture->valid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  event->capture_id = capture->id;
  event->captured = stream->capture_tail;
  return CUDA_SUCCESS;
}

CUresult capture_wait(Stream* stream, Event* event, bool external) {
  if (active.load() == 0) return CUDA_ERROR_NOT_FOUND;
  std::lock_guard<std::mutex> lock(graphs_lock());
  Capture* own = stream->capture;
  Capture* other = nullptr;
  for (Capture* capture : captures()) {
    if (event->capture_id == capture->id) other = capture;
  }
  if (own == nullptr && other == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (own != nullptr && !own->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (other == nullptr) {
    if (external || event->recorded == 0) return CUDA_ERROR_NOT_FOUND;
    own->valid = false;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (own != nullptr && own != other) {
    own->valid = false;
    other->valid = false;
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  if (!other->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream->slot == 0) {
    other->valid = false;
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  add_needs(&stream->capture_tail, event->captured);
  other->streams.insert(stream);
  stream->capture = other;
  return CUDA_SUCCESS;
}

CUresult allow_unsafe_call() {
  if (active.load() == 0 || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  std::lock_guard<std::mutex> lock(graphs_lock());
  bool allowed = true;
  for (Capture* capture : captures()) {
    const bool own = capture->thread == std::this_thread::get_id();
    const bool forbids =
        own ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
            : thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!forbids) continue;
    capture->valid = false;
    allowed = false;
  }
  return allowed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult allow_legacy_stream(Context* context) {
  if (active.load() == 0) return CUDA_SUCCESS;
  std::lock_guard<std::mutex> lock(graphs_lock());
  CUresult result = CUDA_SUCCESS;
  for (Capture* capture : captures()) {
    const bool concerned =
        std::any_of(capture->streams.begin(), capture->streams.end(), [context](const Stream* stream) {
          return stream->context == context && (stream->flags & CU_STREAM_NON_BLOCKING) == 0;
        });
    if (!concerned) continue;
    capture->valid = false;
    result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  return result;
}

CUresult allow_synchronize(Context* context) {
  if (active.load() == 0) return CUDA_SUCCESS;
  std::lock_guard<std::mutex> lock(graphs_lock());
  CUresult result = CUDA_SUCCESS;
  for (Capture* capture : captures()) {
    if (capture->origin->context != context) continue;
    capture->valid = false;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

CUstreamCaptureMode exchange_thread_mode(CUstreamCaptureMode mode) {
  return std::exchange(thread_mode, mode);
}

}  // namespace cudasim
