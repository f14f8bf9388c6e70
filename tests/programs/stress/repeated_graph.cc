// SPDX-License-Identifier: Apache-2.0
#include "tests/programs/stress/repeated_graph.h"

#include "tests/programs/stress/streams.h"

namespace ckpt::examples {
namespace {

constexpr unsigned kThreads = 64;

}  // namespace

RepeatedGraph::RepeatedGraph(const OptionalDriver& driver, const Kernels& kernels, bool captured,
                             CUstream stream, std::uint64_t bytes, std::uint64_t seed, CUdeviceptr wrong)
    : driver_(driver),
      bytes_(bytes),
      seed_(seed),
      wrong_(wrong),
      buffer_(bytes),
      version_(sizeof(std::uint32_t)) {
  check(cuMemsetD8Async(version_.get(), 0, sizeof(std::uint32_t), stream), "cuMemsetD8Async");
  check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  if (captured) {
    capture(kernels, stream);
  } else {
    add_nodes(kernels);
  }
  check(driver_.cuGraphInstantiateWithFlags(&executable_, graph_, 0), "cuGraphInstantiateWithFlags");
}

RepeatedGraph::~RepeatedGraph() {
  driver_.cuGraphExecDestroy(executable_);
  driver_.cuGraphDestroy(graph_);
}

void RepeatedGraph::add_nodes(const Kernels& kernels) {
  CUdeviceptr buffer = buffer_.get();
  CUdeviceptr version = version_.get();
  void* next[] = {&version};
  void* fill[] = {&buffer, &bytes_, &seed_, &version};
  void* verify[] = {&buffer, &bytes_, &seed_, &version, &wrong_};
  check(driver_.cuGraphCreate(&graph_, 0), "cuGraphCreate");
  CUgraphNode previous = nullptr;
  const auto add = [&](const char* name, unsigned blocks, unsigned threads, void** arguments) {
    CUDA_KERNEL_NODE_PARAMS node{};
    node.func = kernels[name];
    node.gridDimX = blocks;
    node.gridDimY = node.gridDimZ = node.blockDimY = node.blockDimZ = 1;
    node.blockDimX = threads;
    node.kernelParams = arguments;
    CUgraphNode added = nullptr;
    check(driver_.cuGraphAddKernelNode(&added, graph_, previous == nullptr ? nullptr : &previous,
                                       previous == nullptr ? 0 : 1, &node),
          "cuGraphAddKernelNode");
    previous = added;
  };
  add("next_version", 1, 1, next);
  add("fill_by", blocks_for(bytes_), kThreads, fill);
  add("verify_by", blocks_for(bytes_), kThreads, verify);
}

void RepeatedGraph::capture(const Kernels& kernels, CUstream stream) {
  const CUfunction next = kernels["next_version"];
  const CUfunction fill = kernels["fill_by"];
  const CUfunction verify = kernels["verify_by"];
  check(driver_.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
  launch_on(stream, next, 1, 1, version_.get());
  launch_on(stream, fill, blocks_for(bytes_), kThreads, buffer_.get(), bytes_, seed_, version_.get());
  launch_on(stream, verify, blocks_for(bytes_), kThreads, buffer_.get(), bytes_, seed_, version_.get(),
            wrong_);
  check(driver_.cuStreamEndCapture(stream, &graph_), "cuStreamEndCapture");
}

void RepeatedGraph::launch(CUstream stream) {
  check(driver_.cuGraphLaunch(executable_, stream), "cuGraphLaunch");
  ++launches_;
}

void RepeatedGraph::verify(CUfunction verify, CUstream stream) {
  if (launches_ == 0) return;
  launch_on(stream, verify, blocks_for(bytes_), kThreads, buffer_.get(), bytes_, seed_, launches_, wrong_);
}

}  // namespace ckpt::examples
