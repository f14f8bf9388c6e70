// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/checkpoint/checkpoint_work.h"

#include <memory>

namespace conformance {
namespace {

constexpr std::uint64_t kWords = 16384;

// The stream, module and memory of one thread. Each round adds one to each word by a launch, and one by a
// graph.
class Worker {
 public:
  Worker(int number, CUcontext context) : number_(number) {
    EXPECT_OK(api().cuCtxSetCurrent(context));
    module_ = load_kernels();
    EXPECT_OK(api().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    EXPECT_OK(api().cuEventCreate(&event_, CU_EVENT_DISABLE_TIMING));
    EXPECT_OK(api().cuMemAlloc_v2(&words_, kWords * 4));
    EXPECT_OK(api().cuMemsetD32Async(words_, 0, kWords, stream_));
    CUgraph graph = nullptr;
    EXPECT_OK(api().cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
    add();
    EXPECT_OK(api().cuStreamEndCapture(stream_, &graph));
    EXPECT_OK(api().cuGraphInstantiateWithFlags(&graph_, graph, 0));
    EXPECT_OK(api().cuGraphDestroy(graph));
  }
  ~Worker() {
    EXPECT_OK(api().cuStreamSynchronize(stream_));
    EXPECT_EQ(rounds_, calls_.load());
    EXPECT_OK(api().cuGraphExecDestroy(graph_));
    EXPECT_OK(api().cuMemFree_v2(words_));
    EXPECT_OK(api().cuEventDestroy_v2(event_));
    EXPECT_OK(api().cuStreamDestroy_v2(stream_));
    EXPECT_OK(api().cuModuleUnload(module_));
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void round() {
    rounds_++;
    add();
    EXPECT_OK(api().cuGraphLaunch(graph_, stream_));
    EXPECT_OK(api().cuLaunchHostFunc(
        stream_, [](void* calls) { ++*static_cast<std::atomic<std::uint64_t>*>(calls); }, &calls_));
    EXPECT_OK(api().cuEventRecord(event_, stream_));
    if (rounds_ % 3 == 0) {
      EXPECT_OK(api().cuEventSynchronize(event_));
    }
    if (rounds_ % 4 == 0) check();
    if (rounds_ % 5 == 0) allocate();
    if (rounds_ % 16 == 0) load();
  }

 private:
  void add() { EXPECT_OK(launch(kernel(module_, "add_one"), 4, 64, stream_, std::uint64_t{words_}, kWords)); }
  void check() {
    std::vector<std::uint32_t> words(kWords);
    EXPECT_OK(api().cuMemcpyDtoHAsync_v2(words.data(), words_, kWords * 4, stream_));
    EXPECT_OK(api().cuStreamSynchronize(stream_));
    EXPECT_EQ(2 * rounds_, words[0]);
    EXPECT_EQ(2 * rounds_, words[kWords - 1]);
  }
  void allocate() {
    const std::size_t bytes = std::size_t{1} << (10 + (rounds_ + static_cast<std::uint64_t>(number_)) % 13);
    CUdeviceptr plain = 0;
    CUdeviceptr pooled = 0;
    EXPECT_OK(api().cuMemAlloc_v2(&plain, bytes));
    EXPECT_OK(api().cuMemAllocAsync(&pooled, bytes, stream_));
    EXPECT_OK(api().cuMemsetD8Async(plain, static_cast<unsigned char>(rounds_), bytes, stream_));
    EXPECT_OK(api().cuMemcpyDtoDAsync_v2(pooled, plain, bytes, stream_));
    std::uint8_t last = 0;
    EXPECT_OK(api().cuMemcpyDtoHAsync_v2(&last, pooled + bytes - 1, 1, stream_));
    EXPECT_OK(api().cuMemFreeAsync(pooled, stream_));
    EXPECT_OK(api().cuStreamSynchronize(stream_));
    EXPECT_EQ(static_cast<std::uint8_t>(rounds_), last);
    EXPECT_OK(api().cuMemFree_v2(plain));
  }
  void load() {
    const CUmodule module = load_kernels();
    CUdeviceptr launches = 0;
    EXPECT_OK(api().cuModuleGetGlobal_v2(&launches, nullptr, module, "launches"));
    EXPECT_OK(launch(kernel(module, "count_launch"), 1, 1, stream_));
    EXPECT_OK(api().cuStreamSynchronize(stream_));
    std::uint64_t seen = 0;
    EXPECT_OK(api().cuMemcpyDtoHAsync_v2(&seen, launches, sizeof seen, stream_));
    EXPECT_OK(api().cuStreamSynchronize(stream_));
    EXPECT_EQ(1U, seen);
    EXPECT_OK(api().cuModuleUnload(module));
  }

  int number_;
  CUmodule module_ = nullptr;
  CUstream stream_ = nullptr;
  CUevent event_ = nullptr;
  CUdeviceptr words_ = 0;
  CUgraphExec graph_ = nullptr;
  std::uint64_t rounds_ = 0;
  std::atomic<std::uint64_t> calls_{0};
};

}  // namespace

Workers::Workers(int threads) {
  int devices = 0;
  EXPECT_OK(api().cuDeviceGetCount(&devices));
  for (int i = 0; i < threads; i++) {
    CUcontext context = nullptr;
    EXPECT_OK(api().cuDevicePrimaryCtxRetain(&context, i % devices));
    threads_.emplace_back([this, i, context] { work(i, context); });
  }
}

void Workers::work(int number, CUcontext context) {
  Worker worker(number, context);
  while (!stop_ && !testing::Test::HasFailure()) {
    worker.round();
    rounds_++;
  }
}

std::uint64_t Workers::stop() {
  stop_ = true;
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  return rounds_;
}

}  // namespace conformance
