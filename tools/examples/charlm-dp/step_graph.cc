// SPDX-License-Identifier: Apache-2.0
#include "tools/examples/charlm-dp/step_graph.h"

#include <utility>

#include "tools/examples/common/gpu.h"

namespace ckpt::examples {

StepGraph::StepGraph() {
  check(cuStreamCreate(&stream_, CU_STREAM_DEFAULT), "cuStreamCreate");
}

StepGraph::~StepGraph() {
  destroy();
  cuStreamDestroy(stream_);
}

void StepGraph::destroy() {
  if (executable_ != nullptr) cuGraphExecDestroy(std::exchange(executable_, nullptr));
  if (graph_ != nullptr) cuGraphDestroy(std::exchange(graph_, nullptr));
}

void StepGraph::run(std::uint64_t epoch, const std::function<void()>& body) {
  if (executable_ == nullptr || std::exchange(epoch_, epoch) != epoch) capture(body);
  epoch_ = epoch;
  check(cuGraphLaunch(executable_, stream_), "cuGraphLaunch");
}

void StepGraph::capture(const std::function<void()>& body) {
  destroy();
  const OnStream on(stream_);
  check(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
  body();
  check(cuStreamEndCapture(stream_, &graph_), "cuStreamEndCapture");
  check(cuGraphInstantiate(&executable_, graph_, 0), "cuGraphInstantiate");
}

}  // namespace ckpt::examples
