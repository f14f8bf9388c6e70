// SPDX-License-Identifier: Apache-2.0
// Stream capture: what is asked of a capturing stream becomes a node of a graph instead of being done. Each
// stream of a capture keeps the nodes that its next one needs. What a capture does not allow makes it
// invalid; it stays so until it is ended.
//
// Threads: all; one lock (graphs_lock()). Whether a stream captures at all is asked without it:
// Stream::capture.
#pragma once

#include <cuda.h>

#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "tests/simulators/cudasim/driver/graph.h"

namespace cudasim {

struct Capture {
  std::uint64_t id = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::thread::id thread;
  Stream* origin = nullptr;
  std::set<Stream*> streams;
  std::shared_ptr<GraphBody> graph;
  bool into_given_graph = false;
  bool valid = true;
};

CUresult begin_capture(Stream* stream, CUstreamCaptureMode mode, const std::shared_ptr<GraphBody>& into,
                       const std::vector<Node*>& needs);
CUresult end_capture(Stream* stream, CUgraph* out);
void invalidate(Stream* stream);
void leave_capture(Stream* stream);  // it is destroyed
void end_dead_captures();            // those whose stream ended with its context; without Process::lock

// The work becomes the stream's next node.
CUresult capture_work(Stream* stream, Work work);
CUresult capture_record(Stream* stream, Event* event);
// A wait for an event of a capture takes the stream into it; CUDA_ERROR_NOT_FOUND: no capture is concerned.
CUresult capture_wait(Stream* stream, Event* event, bool external);

// For calls that a capture does not allow: CUDA_SUCCESS if none forbids them, else the error, and the
// captures are invalid.
CUresult allow_unsafe_call();
CUresult allow_legacy_stream(Context* context);
CUresult allow_synchronize(Context* context);
CUresult allow_wait(Stream* stream);
CUstreamCaptureMode exchange_thread_mode(CUstreamCaptureMode mode);

}  // namespace cudasim
