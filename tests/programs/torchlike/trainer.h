// SPDX-License-Identifier: Apache-2.0
// An integer training on one allocator. A step has a batch from pinned memory, a forward and a backward pass
// on two streams, and an update. It then has temporaries, the replay of a captured graph, and a loss on which
// the next step depends.
// Threads: one. Errors end the program.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/programs/torchlike/allocator.h"
#include "tests/programs/torchlike/pinned.h"
#include "tools/examples/common/digest.h"
#include "tools/examples/common/gpu.h"
#include "tools/examples/common/random.h"

namespace ckpt::examples {

class Trainer {
 public:
  Trainer(const Kernels& kernels, std::unique_ptr<Allocator> allocator, std::uint64_t seed);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  void step(std::uint32_t number);
  // Adds the whole training result to `digest`.
  void add_to(Digest& digest);

 private:
  struct Tensor {
    CUdeviceptr at = 0;
    std::uint64_t words = 0;
  };
  Tensor make(std::uint64_t words, CUstream stream);
  void load_batch();
  void pass();
  void use_temporaries();
  void capture();
  void read_loss();
  void run_forward(const Tensor& weights, const Tensor& out, CUstream stream);
  void run_backward(const Tensor& activation, const Tensor& gradient, CUstream stream);
  void run_update(const Tensor& weights, const Tensor& gradient, CUstream stream);
  void wait_for(CUstream waits, CUstream works);

  CUfunction forward_;
  CUfunction backward_;
  CUfunction update_;
  CUfunction sum_;
  std::unique_ptr<Allocator> allocator_;
  PinnedCache pinned_;
  Random random_;
  CUstream main_ = nullptr;
  CUstream side_ = nullptr;
  Tensor input_;
  std::vector<Tensor> layers_;
  Tensor captured_layer_;
  CUgraph graph_ = nullptr;
  CUgraphExec executable_ = nullptr;
  std::uint64_t loss_ = 0;
};

}  // namespace ckpt::examples
