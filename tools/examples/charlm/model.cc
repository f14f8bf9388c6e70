// SPDX-License-Identifier: Apache-2.0
#include "tools/examples/charlm/model.h"

#include <algorithm>
#include <cmath>

#include "tools/examples/charlm/layers.h"
#include "tools/examples/common/digest.h"
#include "tools/examples/common/random.h"

namespace ckpt::examples {

Shape Shape::choose(std::uint64_t parameters, std::size_t classes) {
  Shape shape;
  shape.classes = static_cast<std::uint32_t>(classes);
  shape.columns = (shape.classes + kTile - 1) / kTile * kTile;
  const double fixed = static_cast<double>(shape.columns) * (kEmbedding + 1);
  const double tiles = (static_cast<double>(parameters) - fixed) / (kInput + 1.0 + shape.columns) / kTile;
  shape.hidden = kTile * static_cast<std::uint32_t>(std::clamp(std::round(tiles), 1.0, 1e6));
  return shape;
}

std::uint64_t Shape::parameters() const {
  return std::uint64_t{columns} * kEmbedding + std::uint64_t{kInput} * hidden + hidden +
         std::uint64_t{hidden} * columns + columns;
}

Model::Layout Model::lay_out(const Shape& shape) {
  Layout at{};
  at.w1 = std::uint64_t{shape.columns} * kEmbedding;
  at.b1 = at.w1 + std::uint64_t{Shape::kInput} * shape.hidden;
  at.w2 = at.b1 + shape.hidden;
  at.b2 = at.w2 + std::uint64_t{shape.hidden} * shape.columns;
  at.end = at.b2 + shape.columns;
  return at;
}

Model::Model(Session& session, const Shape& shape, std::uint64_t text_bytes, std::uint32_t batch)
    : shape_(shape),
      at_(lay_out(shape)),
      batch_(batch),
      kernels_("charlm_kernels"),
      weights_(session.alloc(bytes_of(at_.end))),
      first_(session.alloc(bytes_of(at_.end))),
      second_(session.alloc(bytes_of(at_.end))),
      gradients_(session.alloc(bytes_of(at_.end))),
      text_(session.alloc(text_bytes)),
      positions_(batch_ * sizeof(std::uint64_t)),
      context_(batch_ * kContext),
      input_(bytes_of(batch_ * Shape::kInput)),
      hidden_(bytes_of(std::uint64_t{batch_} * shape.hidden)),
      scores_(bytes_of(std::uint64_t{batch_} * shape.columns)),
      hidden_gradient_(bytes_of(std::uint64_t{batch_} * shape.hidden)),
      input_gradient_(bytes_of(batch_ * Shape::kInput)),
      transposed_(bytes_of(std::uint64_t{shape.hidden} * std::max(Shape::kInput, shape.columns))),
      loss_(bytes_of(batch_)) {
  name_tensors(session, text_bytes);
}

void Model::name_tensors(Session& session, std::uint64_t text_bytes) {
  const auto parameter = [&](const char* name, std::uint64_t at, std::vector<std::uint64_t> extents) {
    session.tensor(name, weights_ + bytes_of(at), CKPT_F32, std::move(extents), CKPT_PARAMETER);
  };
  parameter("embedding", at_.embedding, {shape_.columns, kEmbedding});
  parameter("w1", at_.w1, {Shape::kInput, shape_.hidden});
  parameter("b1", at_.b1, {shape_.hidden});
  parameter("w2", at_.w2, {shape_.hidden, shape_.columns});
  parameter("b2", at_.b2, {shape_.columns});
  session.tensor("adam.first", first_, CKPT_F32, {at_.end}, CKPT_OPTIMIZER);
  session.tensor("adam.second", second_, CKPT_F32, {at_.end}, CKPT_OPTIMIZER);
  session.tensor("gradients", gradients_, CKPT_F32, {at_.end}, CKPT_SCRATCH);
  session.tensor("text", text_, CKPT_U8, {text_bytes}, CKPT_BUFFER);
}

void Model::initialise(std::uint64_t seed, const std::vector<std::uint8_t>& text) {
  Random random(seed);
  std::vector<float> values(at_.end);
  const auto fill = [&](std::uint64_t begin, std::uint64_t end, double spread) {
    for (std::uint64_t i = begin; i < end; i++) {
      values[i] = static_cast<float>((static_cast<double>(random.next() >> 11) * 0x1p-52 - 1.0) * spread);
    }
  };
  fill(at_.embedding, at_.w1, 0.5);
  fill(at_.w1, at_.b1, 1.0 / std::sqrt(static_cast<double>(Shape::kInput)));
  fill(at_.w2, at_.b2, 0.5 / std::sqrt(static_cast<double>(shape_.hidden)));
  upload(weights_, values.data(), bytes_of(at_.end));
  for (const CUdeviceptr moments : {first_, second_}) {
    check(cuMemsetD8(moments, 0, bytes_of(at_.end)), "cuMemsetD8");
  }
  upload(text_, text.data(), text.size());
}

void Model::transpose(CUdeviceptr in, std::uint32_t rows, std::uint32_t columns) {
  examples::transpose(kernels_, in, rows, columns, transposed_.get());
}

void Model::forward() {
  const std::uint64_t hidden = std::uint64_t{batch_} * shape_.hidden;
  const std::uint64_t scores = std::uint64_t{batch_} * shape_.columns;
  launch(kernels_["gather"], 4, 256, text_, positions_.get(), weights_ + bytes_of(at_.embedding), batch_,
         kContext, kEmbedding, context_.get(), input_.get());
  matmul(kernels_, input_.get(), Shape::kInput, 1, weights_ + bytes_of(at_.w1), hidden_.get(), batch_,
         shape_.hidden, Shape::kInput);
  launch(kernels_["add_bias"], blocks_for(hidden), 256, hidden_.get(), weights_ + bytes_of(at_.b1), hidden,
         shape_.hidden, std::uint32_t{1});
  matmul(kernels_, hidden_.get(), shape_.hidden, 1, weights_ + bytes_of(at_.w2), scores_.get(), batch_,
         shape_.columns, shape_.hidden);
  launch(kernels_["add_bias"], blocks_for(scores), 256, scores_.get(), weights_ + bytes_of(at_.b2), scores,
         shape_.columns, std::uint32_t{0});
  launch(kernels_["softmax_loss"], batch_, 64, scores_.get(), text_, positions_.get(), kContext,
         shape_.classes, shape_.columns, kBatch, loss_.get());
}

// Runs the backward pass. softmax_loss has stored the gradient in place of the scores.
void Model::backward() {
  const std::uint64_t hidden = std::uint64_t{batch_} * shape_.hidden;
  const auto gradient = [&](std::uint64_t at) { return gradients_ + bytes_of(at); };
  matmul(kernels_, hidden_.get(), 1, shape_.hidden, scores_.get(), gradient(at_.w2), shape_.hidden,
         shape_.columns, batch_);
  launch(kernels_["column_sums"], 1, 64, scores_.get(), batch_, shape_.columns, gradient(at_.b2));
  transpose(weights_ + bytes_of(at_.w2), shape_.hidden, shape_.columns);
  matmul(kernels_, scores_.get(), shape_.columns, 1, transposed_.get(), hidden_gradient_.get(), batch_,
         shape_.hidden, shape_.columns);
  launch(kernels_["tanh_gradient"], blocks_for(hidden), 256, hidden_gradient_.get(), hidden_.get(), hidden);
  matmul(kernels_, input_.get(), 1, Shape::kInput, hidden_gradient_.get(), gradient(at_.w1), Shape::kInput,
         shape_.hidden, batch_);
  launch(kernels_["column_sums"], blocks_for(shape_.hidden), 256, hidden_gradient_.get(), batch_,
         shape_.hidden, gradient(at_.b1));
  transpose(weights_ + bytes_of(at_.w1), Shape::kInput, shape_.hidden);
  matmul(kernels_, hidden_gradient_.get(), shape_.hidden, 1, transposed_.get(), input_gradient_.get(), batch_,
         Shape::kInput, shape_.hidden);
  launch(kernels_["embedding_gradient"], shape_.columns, kEmbedding, context_.get(), input_gradient_.get(),
         batch_ * kContext, kEmbedding, gradient(at_.embedding));
}

void Model::update(std::uint64_t step, std::uint64_t begin, std::uint64_t count) {
  const std::uint64_t at = bytes_of(begin);
  update_by_adam(kernels_, weights_ + at, gradients_ + at, first_ + at, second_ + at, count, step);
}

void Model::take(const std::vector<std::uint64_t>& share) {
  upload(positions_.get(), share.data(), share.size() * sizeof(std::uint64_t));
}

void Model::compute() {
  forward();
  backward();
}

double Model::loss_sum() const {
  std::vector<float> losses(batch_);
  download(losses.data(), loss_.get(), bytes_of(batch_));
  double sum = 0;
  for (const float loss : losses) sum += loss;
  return sum;
}

double Model::train(const std::vector<std::uint64_t>& positions, std::uint64_t step) {
  take(positions);
  compute();
  update(step);
  return loss_sum() / kBatch;
}

std::string Model::digest() const {
  Digest digest;
  for (const CUdeviceptr part : {weights_, first_, second_}) add_device(digest, part, bytes_of(at_.end));
  return digest.hex();
}

}  // namespace ckpt::examples
