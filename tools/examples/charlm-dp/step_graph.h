// SPDX-License-Identifier: Apache-2.0
// A part of a step that is captured once and launched in each step, until its communicator is another one.
// Threads: one. Ownership: RAII; the driver's context and the communicator outlive it: NCCL waits for graphs before a
// communicator ends. Errors: the program ends.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>

namespace ckpt::examples {

class StepGraph {
 public:
  // On a stream of its own, which is ordered with the legacy stream.
  StepGraph();
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  // Enqueues what `body` enqueues on the current stream. `body` is called when the graph is captured: the first time, and
  // when `epoch` has changed.
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
