// SPDX-License-Identifier: Apache-2.0
// A long-lived graph that is launched repeatedly. It increments a version in device memory, fills a buffer
// with this version and checks the buffer. The graph is built from nodes, or captured from a stream.
// Threads: one. Ownership: the graph and its memory.
#pragma once

#include <cstdint>

#include "tests/programs/stress/optional_driver.h"
#include "tools/examples/common/gpu.h"

namespace ckpt::examples {

class RepeatedGraph {
 public:
  // Creates the graph. `wrong` is a counter in device memory to which differences are added. `capture` is a
  // stream whose work may be recorded.
  RepeatedGraph(const OptionalDriver& driver, const Kernels& kernels, bool captured, CUstream capture,
                std::uint64_t bytes, std::uint64_t seed, CUdeviceptr wrong);
  ~RepeatedGraph();
  RepeatedGraph(const RepeatedGraph&) = delete;
  RepeatedGraph& operator=(const RepeatedGraph&) = delete;

  void launch(CUstream stream);
  // Checks the buffer's content against the version that the host counted.
  void verify(CUfunction verify, CUstream stream);

 private:
  void add_nodes(const Kernels& kernels);
  void capture(const Kernels& kernels, CUstream stream);

  const OptionalDriver& driver_;
  std::uint64_t bytes_;
  std::uint64_t seed_;
  CUdeviceptr wrong_;
  LocalMemory buffer_;
  LocalMemory version_;
  std::uint32_t launches_ = 0;
  CUgraph graph_ = nullptr;
  CUgraphExec executable_ = nullptr;
};

}  // namespace ckpt::examples
