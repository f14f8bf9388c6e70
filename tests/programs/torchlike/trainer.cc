// SPDX-License-Identifier: Apache-2.0
#include "tests/programs/torchlike/trainer.h"

#include <algorithm>

namespace ckpt::examples {
namespace {

constexpr std::uint64_t kWord = sizeof(std::uint64_t);
constexpr std::uint64_t kInputWords = 8192;
// One layer for each size class of the allocator: in a segment of 2 MiB, in a segment of 20 MiB, and with its
// own segment.
constexpr std::uint64_t kLayerBytes[] = {1536, 700 << 10, 3 * kMiB, 11 * kMiB};
constexpr std::uint64_t kCapturedBytes = 2 * kMiB;
constexpr unsigned kThreads = 64;
constexpr std::uint64_t kBlocks = 32;
constexpr std::uint32_t kEmptyEvery = 8;
constexpr int kTemporaries = 6;
constexpr std::uint64_t kTemporaryBytes = 4 * kMiB;

template <class... Arguments>
void launch_on(CUstream stream, CUfunction kernel, Arguments... arguments) {
  void* pointers[] = {static_cast<void*>(&arguments)...};
  check(cuLaunchKernel(kernel, kBlocks, 1, 1, kThreads, 1, 1, 0, stream, pointers, nullptr),
        "cuLaunchKernel");
}

}  // namespace

Trainer::Trainer(const Kernels& kernels, std::unique_ptr<Allocator> allocator, std::uint64_t seed)
    : forward_(kernels["forward"]),
      backward_(kernels["backward"]),
      update_(kernels["update"]),
      sum_(kernels["sum"]),
      allocator_(std::move(allocator)),
      random_(seed) {
  check(cuStreamCreate(&main_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  check(cuStreamCreate(&side_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  input_ = make(kInputWords, main_);
  for (const std::uint64_t bytes : kLayerBytes) layers_.push_back(make(bytes / kWord, main_));
  captured_layer_ = make(kCapturedBytes / kWord, main_);
  for (const Tensor& layer : layers_)
    check(cuMemsetD32Async(layer.at, 7, layer.words * 2, main_), "cuMemsetD32Async");
  check(cuMemsetD32Async(captured_layer_.at, 9, captured_layer_.words * 2, main_), "cuMemsetD32Async");
  check(cuStreamSynchronize(main_), "cuStreamSynchronize");
  capture();
}

Trainer::~Trainer() {
  cuCtxSynchronize();
  cuGraphExecDestroy(executable_);
  cuGraphDestroy(graph_);
  cuStreamDestroy(side_);
  cuStreamDestroy(main_);
}

Trainer::Tensor Trainer::make(std::uint64_t words, CUstream stream) {
  return {allocator_->allocate(words * kWord, stream), words};
}

void Trainer::run_forward(const Tensor& weights, const Tensor& out, CUstream stream) {
  launch_on(stream, forward_, weights.at, input_.at, kInputWords, out.at, out.words);
}

void Trainer::run_backward(const Tensor& activation, const Tensor& gradient, CUstream stream) {
  launch_on(stream, backward_, activation.at, gradient.at, gradient.words);
}

void Trainer::run_update(const Tensor& weights, const Tensor& gradient, CUstream stream) {
  launch_on(stream, update_, weights.at, gradient.at, weights.words);
}

void Trainer::wait_for(CUstream waits, CUstream works) {
  CUevent event = nullptr;
  check(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  check(cuEventRecord(event, works), "cuEventRecord");
  check(cuStreamWaitEvent(waits, event, 0), "cuStreamWaitEvent");
  check(cuEventDestroy(event), "cuEventDestroy");
}

// Captures one layer's step as a graph. Its temporaries use memory that belongs to the graph.
void Trainer::capture() {
  Tensor activation;
  Tensor gradient;
  const auto allocate = [&] {
    activation = make(captured_layer_.words, main_);
    gradient = make(captured_layer_.words, main_);
  };
  if (!allocator_->allocates_in_captures()) allocate();
  check(cuStreamBeginCapture(main_, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
  allocator_->begin_capture();
  if (allocator_->allocates_in_captures()) allocate();
  run_forward(captured_layer_, activation, main_);
  run_backward(activation, gradient, main_);
  run_update(captured_layer_, gradient, main_);
  if (allocator_->allocates_in_captures()) {
    allocator_->free(activation.at);
    allocator_->free(gradient.at);
  }
  allocator_->end_capture();
  check(cuStreamEndCapture(main_, &graph_), "cuStreamEndCapture");
  check(cuGraphInstantiateWithFlags(&executable_, graph_, 0), "cuGraphInstantiateWithFlags");
}

void Trainer::load_batch() {
  std::uint64_t* batch = pinned_.get(kInputWords * kWord);
  for (std::uint64_t i = 0; i < kInputWords; ++i) batch[i] = random_.next() + loss_;
  check(cuMemcpyHtoDAsync(input_.at, batch, kInputWords * kWord, main_), "cuMemcpyHtoDAsync");
  pinned_.put(batch, main_);
}

// Runs both passes. The backward pass runs on the side stream. Its blocks are freed while the side stream
// still uses them.
void Trainer::pass() {
  std::vector<Tensor> activations;
  for (const Tensor& layer : layers_) {
    activations.push_back(make(layer.words, main_));
    run_forward(layer, activations.back(), main_);
  }
  for (std::size_t i = layers_.size(); i-- > 0;) {
    const Tensor gradient = make(layers_[i].words, main_);
    wait_for(side_, main_);
    run_backward(activations[i], gradient, side_);
    allocator_->used_by(activations[i].at, side_);
    allocator_->free(activations[i].at);
    wait_for(main_, side_);
    run_update(layers_[i], gradient, main_);
    allocator_->free(gradient.at);
  }
}

// Fills temporaries of many sizes: a block that was allocated twice would change the training result.
void Trainer::use_temporaries() {
  std::vector<CUdeviceptr> held;
  for (int i = 0; i < kTemporaries; ++i) {
    const std::uint64_t bytes = 4 + random_.below(i % 2 == 0 ? kMiB : kTemporaryBytes) / 4 * 4;
    const CUstream stream = i % 3 == 0 ? side_ : main_;
    held.push_back(allocator_->allocate(bytes, stream));
    check(cuMemsetD32Async(held.back(), 0xA5A5A5A5, bytes / 4, stream), "cuMemsetD32Async");
  }
  for (const CUdeviceptr at : held) allocator_->free(at);
}

void Trainer::read_loss() {
  const Tensor total = make(1, main_);
  check(cuMemsetD32Async(total.at, 0, 2, main_), "cuMemsetD32Async");
  for (const Tensor& layer : layers_)
    launch_on(main_, sum_, layer.at, std::min(layer.words, kInputWords), total.at);
  std::uint64_t* loss = pinned_.get(kWord);
  check(cuMemcpyDtoHAsync(loss, total.at, kWord, main_), "cuMemcpyDtoHAsync");
  check(cuStreamSynchronize(main_), "cuStreamSynchronize");
  loss_ = *loss;
  pinned_.put(loss, main_);
  allocator_->free(total.at);
}

void Trainer::step(std::uint32_t number) {
  load_batch();
  pass();
  use_temporaries();
  check(cuGraphLaunch(executable_, main_), "cuGraphLaunch");
  read_loss();
  if (number % kEmptyEvery == 0) allocator_->empty_cache();
}

void Trainer::add_to(Digest& digest) {
  check(cuCtxSynchronize(), "cuCtxSynchronize");
  for (const Tensor& layer : layers_) add_device(digest, layer.at, layer.words * kWord);
  add_device(digest, captured_layer_.at, captured_layer_.words * kWord);
  digest.add(&loss_, sizeof loss_);
}

}  // namespace ckpt::examples
