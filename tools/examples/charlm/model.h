// SPDX-License-Identifier: Apache-2.0
// charlm's model: the last kContext characters are embedded, and pass through one hidden layer (tanh) and a
// softmax. The model is trained with Adam. Parameters are in one piece of device memory, and their moments in
// two more. Gradients and activations are not needed between two steps.
// Threads: one. Ownership: Gpu and Session outlive the model. Errors: the program exits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/examples/common/gpu.h"

namespace ckpt::examples {

constexpr std::uint32_t kContext = 16;  // number of characters that predict the next character
constexpr std::uint32_t kEmbedding = 16;
constexpr std::uint32_t kBatch = 64;

struct Shape {
  std::uint32_t classes = 0;  // number of distinct characters
  std::uint32_t columns = 0;  // `classes` rounded up to whole tiles
  std::uint32_t hidden = 0;
  static constexpr std::uint32_t kInput = kContext * kEmbedding;

  // Returns the shape whose number of parameters comes closest to `parameters`, with a hidden width of whole
  // tiles.
  static Shape choose(std::uint64_t parameters, std::size_t classes);
  [[nodiscard]] std::uint64_t parameters() const;
};

class Model {
 public:
  // Creates a model. `batch` is the number of a step's kBatch places that this model computes, and is a
  // multiple of 4.
  Model(Session& session, const Shape& shape, std::uint64_t text_bytes, std::uint32_t batch = kBatch);

  void initialise(std::uint64_t seed, const std::vector<std::uint8_t>& text);
  // Performs one step of Adam on the kBatch places `positions`; `step` counts from 1. Returns the mean loss
  // before the step.
  double train(const std::vector<std::uint64_t>& positions, std::uint64_t step);

  // Takes the places of a share. take(), compute() and update() are the parts of a step, for several models
  // that share a batch. The gradients belong to the mean loss over kBatch places: their sum over all shares
  // is the gradient of the step. take() and compute() enqueue on the current stream. compute() uses the
  // places of the last take(), and can be captured.
  void take(const std::vector<std::uint64_t>& share);
  void compute();
  [[nodiscard]] CUdeviceptr gradients() const { return gradients_; }
  // Returns the number of gradients, each of which is a float.
  [[nodiscard]] std::uint64_t gradient_count() const { return at_.end; }
  [[nodiscard]] CUdeviceptr weights() const { return weights_; }
  void update(std::uint64_t step) { update(step, 0, at_.end); }
  // Updates `count` floats of weights and moments, from `begin` on.
  void update(std::uint64_t step, std::uint64_t begin, std::uint64_t count);
  [[nodiscard]] double loss_sum() const;  // the loss over the share's places; waits for compute()
  // Returns a digest of weights and moments.
  [[nodiscard]] std::string digest() const;

 private:
  void name_tensors(Session& session, std::uint64_t text_bytes);
  void forward();
  void backward();
  void transpose(CUdeviceptr in, std::uint32_t rows, std::uint32_t columns);

  // The start of each tensor in floats. Parameters, gradients and moments share this layout.
  struct Layout {
    std::uint64_t embedding, w1, b1, w2, b2, end;
  };
  static Layout lay_out(const Shape& shape);

  Shape shape_;
  Layout at_;
  std::uint32_t batch_;
  Kernels kernels_;
  CUdeviceptr weights_, first_, second_, gradients_, text_;
  LocalMemory positions_, context_, input_, hidden_, scores_, hidden_gradient_, input_gradient_, transposed_,
      loss_;
};

}  // namespace ckpt::examples
