// SPDX-License-Identifier: Apache-2.0
#include "tests/programs/pipeline/stage.h"

#include <cmath>

#include "tools/examples/charlm/layers.h"
#include "tools/examples/common/digest.h"
#include "tools/examples/common/random.h"

namespace ckpt::examples {

Stage::Stage(Session& session, const StageShape& shape, std::uint64_t text_bytes)
    : shape_(shape), kernels_("charlm_kernels") {
  const std::uint32_t hidden = shape.model.hidden;
  if (shape.is_first) end_ = std::uint64_t{shape.model.columns} * kEmbedding;
  add_layer(shape.is_first ? Shape::kInput : hidden, hidden, true);
  if (shape.is_last) add_layer(hidden, shape.model.columns, false);
  weights_ = session.alloc(bytes_of(end_));
  first_ = session.alloc(bytes_of(end_));
  second_ = session.alloc(bytes_of(end_));
  gradients_ = session.alloc(bytes_of(end_));
  text_ = session.alloc(text_bytes);
  positions_ = local(kBatch * sizeof(std::uint64_t) / sizeof(float));
  context_ = local(std::uint64_t{kBatch} * kContext / sizeof(float));
  loss_ = local(kBatch);
  name_tensors(session, text_bytes);
}

CUdeviceptr Stage::local(std::uint64_t floats) {
  return locals_.emplace_back(std::make_unique<LocalMemory>(bytes_of(floats)))->get();
}

void Stage::add_layer(std::uint32_t in, std::uint32_t out, bool squashes) {
  Layer layer;
  layer.in = in;
  layer.out = out;
  layer.squashes = squashes;
  layer.weights = end_;
  layer.bias = layer.weights + std::uint64_t{in} * out;
  end_ = layer.bias + out;
  const bool follows = !layers_.empty();
  layer.input = follows ? layers_.back().output : local(std::uint64_t{kBatch} * in);
  layer.input_gradient = follows ? layers_.back().gradient : local(std::uint64_t{kBatch} * in);
  layer.output = local(std::uint64_t{kBatch} * out);
  // The softmax stores the gradient in place of the scores.
  layer.gradient = squashes ? local(std::uint64_t{kBatch} * out) : layer.output;
  layer.transposed = local(std::uint64_t{in} * out);
  layers_.push_back(layer);
}

void Stage::name_tensors(Session& session, std::uint64_t text_bytes) {
  session.tensor("weights", weights_, CKPT_F32, {end_}, CKPT_PARAMETER);
  session.tensor("adam.first", first_, CKPT_F32, {end_}, CKPT_OPTIMIZER);
  session.tensor("adam.second", second_, CKPT_F32, {end_}, CKPT_OPTIMIZER);
  session.tensor("gradients", gradients_, CKPT_F32, {end_}, CKPT_SCRATCH);
  session.tensor("text", text_, CKPT_U8, {text_bytes}, CKPT_BUFFER);
}

void Stage::initialise(std::uint64_t seed, const std::vector<std::uint8_t>& text) {
  Random random(seed);
  std::vector<float> values(end_);
  const auto fill = [&](std::uint64_t begin, std::uint64_t end, double spread) {
    for (std::uint64_t i = begin; i < end; i++)
      values[i] = static_cast<float>((static_cast<double>(random.next() >> 11) * 0x1p-52 - 1.0) * spread);
  };
  fill(0, layers_.front().weights, 0.5);
  for (const Layer& layer : layers_)
    fill(layer.weights, layer.bias, 1.0 / std::sqrt(static_cast<double>(layer.in)));
  upload(weights_, values.data(), bytes_of(end_));
  for (const CUdeviceptr moments : {first_, second_})
    check(cuMemsetD8(moments, 0, bytes_of(end_)), "cuMemsetD8");
  upload(text_, text.data(), text.size());
}

std::uint64_t Stage::crossing() const {
  return std::uint64_t{shape_.rows} * shape_.model.hidden;
}

CUdeviceptr Stage::rows_of(CUdeviceptr matrix, std::uint32_t width, std::uint32_t micro_batch) const {
  return matrix + bytes_of(std::uint64_t{micro_batch} * shape_.rows * width);
}

CUdeviceptr Stage::input(std::uint32_t micro_batch) const {
  return rows_of(layers_.front().input, layers_.front().in, micro_batch);
}
CUdeviceptr Stage::input_gradient(std::uint32_t micro_batch) const {
  return rows_of(layers_.front().input_gradient, layers_.front().in, micro_batch);
}
CUdeviceptr Stage::output(std::uint32_t micro_batch) const {
  return rows_of(layers_.back().output, layers_.back().out, micro_batch);
}
CUdeviceptr Stage::output_gradient(std::uint32_t micro_batch) const {
  return rows_of(layers_.back().gradient, layers_.back().out, micro_batch);
}

void Stage::begin_step(const std::vector<std::uint64_t>& positions) {
  upload(positions_, positions.data(), positions.size() * sizeof(std::uint64_t));
  for (const Layer& layer : layers_)
    transpose(kernels_, weights_ + bytes_of(layer.weights), layer.in, layer.out, layer.transposed);
}

void Stage::forward(std::uint32_t micro_batch) {
  const std::uint64_t first_row = std::uint64_t{micro_batch} * shape_.rows;
  const CUdeviceptr positions = positions_ + first_row * sizeof(std::uint64_t);
  if (shape_.is_first)
    launch(kernels_["gather"], 4, 256, text_, positions, weights_, shape_.rows, kContext, kEmbedding,
           context_ + first_row * kContext, input(micro_batch));
  for (const Layer& layer : layers_) {
    const CUdeviceptr out = rows_of(layer.output, layer.out, micro_batch);
    const std::uint64_t count = std::uint64_t{shape_.rows} * layer.out;
    matmul(kernels_, rows_of(layer.input, layer.in, micro_batch), layer.in, 1,
           weights_ + bytes_of(layer.weights), out, shape_.rows, layer.out, layer.in);
    launch(kernels_["add_bias"], blocks_for(count), 256, out, weights_ + bytes_of(layer.bias), count,
           layer.out, std::uint32_t{layer.squashes ? 1U : 0U});
  }
  if (shape_.is_last)
    launch(kernels_["softmax_loss"], shape_.rows, 64, output(micro_batch), text_, positions, kContext,
           shape_.model.classes, shape_.model.columns, kBatch, loss_ + bytes_of(first_row));
}

void Stage::backward(std::uint32_t micro_batch) {
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
    const CUdeviceptr gradient = rows_of(layer->gradient, layer->out, micro_batch);
    const std::uint64_t count = std::uint64_t{shape_.rows} * layer->out;
    if (layer->squashes)
      launch(kernels_["tanh_gradient"], blocks_for(count), 256, gradient,
             rows_of(layer->output, layer->out, micro_batch), count);
    matmul(kernels_, gradient, layer->out, 1, layer->transposed,
           rows_of(layer->input_gradient, layer->in, micro_batch), shape_.rows, layer->in, layer->out);
  }
}

// Computes the gradients over the whole step at once. The order of the sums is the order of the step's
// places.
void Stage::finish_gradients() {
  for (const Layer& layer : layers_) {
    matmul(kernels_, layer.input, 1, layer.in, layer.gradient, gradients_ + bytes_of(layer.weights), layer.in,
           layer.out, kBatch);
    launch(kernels_["column_sums"], blocks_for(layer.out), 256, layer.gradient, kBatch, layer.out,
           gradients_ + bytes_of(layer.bias));
  }
  if (shape_.is_first)
    launch(kernels_["embedding_gradient"], shape_.model.columns, kEmbedding, context_,
           layers_.front().input_gradient, kBatch * kContext, kEmbedding, gradients_);
}

void Stage::update(std::uint64_t step) {
  finish_gradients();
  update_by_adam(kernels_, weights_, gradients_, first_, second_, end_, step);
}

double Stage::loss() const {
  std::vector<float> losses(kBatch);
  download(losses.data(), loss_, bytes_of(kBatch));
  double sum = 0;
  for (const float loss : losses) sum += loss;
  return sum / kBatch;
}

std::string Stage::digest() const {
  Digest digest;
  for (const CUdeviceptr part : {weights_, first_, second_}) add_device(digest, part, bytes_of(end_));
  return digest.hex();
}

}  // namespace ckpt::examples
