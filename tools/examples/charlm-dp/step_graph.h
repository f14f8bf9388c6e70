// SPDX-License-Identifier: Apache-2.0
// A part of a step that is captured once and launched in each step, until its communicator changes.
// Threads: one. Ownership: RAII; the driver's context and the communicator outlive the graph: NCCL waits for
// graphs before a communicator is destroyed. Errors: the program exits.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>

namespace ckpt::examples {

class StepGraph {
 public:
  // Creates the graph's own stream, which is ordered with the legacy stream.
  StepGraph();
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  // Enqueues the work of `body` on the current stream. Calls `body` when the graph is captured: the first
  // time, and after `epoch` has changed.
  void run(std::uint64_t epoch, const std::function<void()>& body);

 private:
  void capture(const std::function<void()>& body);
  void destroy();

  CUstream stream_ = nullptr;
  CUgraph graph_ = nullptr;
  CUgraphExec executable_ = nullptr;
  std::uint64_t epoch_ = 0;
};

}  // namespace ckpt::examples
