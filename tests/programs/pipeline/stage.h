// SPDX-License-Identifier: Apache-2.0
// One stage of a deep charlm. The first stage embeds the last characters, each stage has a hidden layer
// (tanh), and the last stage also has the softmax. Weights and their moments move with the job; activations
// and gradients are not needed between two steps.
//
// A step takes kBatch places in micro-batches of `rows` places. forward() and backward() take one micro-batch
// each, all forwards first. The buffers of a micro-batch are rows of the step's buffers. update() then uses
// the gradients of all micro-batches.
// Threads: one. Ownership: Gpu and Session outlive the stage. Errors: the program exits.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tools/examples/charlm/model.h"
#include "tools/examples/common/gpu.h"

namespace ckpt::examples {

struct StageShape {
  Shape model;  // the whole model; every stage has its hidden width
  bool is_first = false;
  bool is_last = false;
  std::uint32_t rows = kBatch;  // rows of a micro-batch, a multiple of 4
};

class Stage {
 public:
  Stage(Session& session, const StageShape& shape, std::uint64_t text_bytes);

  void initialise(std::uint64_t seed, const std::vector<std::uint8_t>& text);
  void begin_step(const std::vector<std::uint64_t>& positions);
  // Returns the number of floats that cross a boundary between stages for one micro-batch. The following
  // functions return the addresses of these floats.
  [[nodiscard]] std::uint64_t crossing() const;
  [[nodiscard]] CUdeviceptr input(std::uint32_t micro_batch) const;            // not for the first stage
  [[nodiscard]] CUdeviceptr input_gradient(std::uint32_t micro_batch) const;   // not for the first stage
  [[nodiscard]] CUdeviceptr output(std::uint32_t micro_batch) const;           // not for the last stage
  [[nodiscard]] CUdeviceptr output_gradient(std::uint32_t micro_batch) const;  // not for the last stage
  void forward(std::uint32_t micro_batch);
  void backward(std::uint32_t micro_batch);
  // Performs one step of Adam; `step` counts from 1.
  void update(std::uint64_t step);
  [[nodiscard]] double loss() const;  // the last stage's mean loss over the step; call this before update()
  [[nodiscard]] std::uint64_t parameters() const { return end_; }
  // Returns the digest of weights and moments.
  [[nodiscard]] std::string digest() const;

 private:
  // A layer from `in` to `out` values. The struct has the offsets of its weights and bias, in floats.
  struct Layer {
    std::uint32_t in = 0, out = 0;
    bool squashes = false;
    std::uint64_t weights = 0, bias = 0;
    CUdeviceptr input = 0, output = 0;             // input and output with kBatch rows
    CUdeviceptr gradient = 0, input_gradient = 0;  // gradients with kBatch rows
    CUdeviceptr transposed = 0;                    // the transposed weights
  };
  [[nodiscard]] CUdeviceptr local(std::uint64_t floats);
  void add_layer(std::uint32_t in, std::uint32_t out, bool squashes);
  void name_tensors(Session& session, std::uint64_t text_bytes);
  [[nodiscard]] CUdeviceptr rows_of(CUdeviceptr matrix, std::uint32_t width, std::uint32_t micro_batch) const;
  void finish_gradients();

  const StageShape shape_;
  Kernels kernels_;
  std::vector<std::unique_ptr<LocalMemory>> locals_;
  std::vector<Layer> layers_;
  std::uint64_t end_ = 0;  // end of the layout, in floats
  CUdeviceptr weights_ = 0, first_ = 0, second_ = 0, gradients_ = 0, text_ = 0;
  CUdeviceptr positions_ = 0, context_ = 0, loss_ = 0;
};

}  // namespace ckpt::examples
