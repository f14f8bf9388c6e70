// SPDX-License-Identifier: Apache-2.0
// Stream capture: each operation on a capturing stream becomes a node of a graph and is not executed. Each
// stream of a capture stores the nodes that its next node depends on. A forbidden operation invalidates the
// capture until the capture ends.
//
// Threads: all; one lock (graphs_lock()). Stream::capture shows without the lock whether a stream captures.
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
void leave_capture(Stream* stream);  // removes a stream that is destroyed from its capture
void end_dead_captures();  // ends captures whose stream ended with its context; without Process::lock

// Adds the work as the stream's next node.
CUresult capture_work(Stream* stream, Work work);
CUresult capture_record(Stream* stream, Event* event);
// Waits for an event of a capture, and adds the stream to this capture. Returns CUDA_ERROR_NOT_FOUND if no
// capture is affected.
CUresult capture_wait(Stream* stream, Event* event, bool external);

// Checks a call that captures do not allow. Returns CUDA_SUCCESS if no capture forbids the call; otherwise
// returns the error and invalidates the captures.
CUresult allow_unsafe_call();
CUresult allow_legacy_stream(Context* context);
CUresult allow_synchronize(Context* context);
CUresult allow_wait(Stream* stream);
CUstreamCaptureMode exchange_thread_mode(CUstreamCaptureMode mode);

}  // namespace cudasim
