// SPDX-License-Identifier: Apache-2.0
#include "tests/programs/late/hold.h"

namespace ckpt::examples {

Hold::Hold(const std::string& kind, CUcontext context) {
  void* memory = nullptr;
  check(cuMemHostAlloc(&memory, sizeof *told_, CU_MEMHOSTALLOC_DEVICEMAP), "cuMemHostAlloc");
  told_ = static_cast<std::uint32_t*>(memory);
  *told_ = 0;
  check(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  if (kind == "handle") {
    constexpr std::size_t kShared = 4096;
    check(cuMemAlloc(&shared_, kShared), "cuMemAlloc");
    CUipcMemHandle handle{};
    check(cuIpcGetMemHandle(&handle, shared_), "cuIpcGetMemHandle");
    return;
  }
  if (kind == "callback") {
    const CUhostFn wait = [](void* told) { std::atomic_ref(*static_cast<std::uint32_t*>(told)).wait(0); };
    check(cuLaunchHostFunc(stream_, wait, told_), "cuLaunchHostFunc");
    return;
  }
  CUdeviceptr there = 0;
  check(cuMemHostGetDevicePointer(&there, told_, 0), "cuMemHostGetDevicePointer");
  CUstream held = kind == "copy" ? CU_STREAM_LEGACY : stream_;
  check(cuStreamWaitValue32(held, there, 1, CU_STREAM_WAIT_VALUE_EQ), "cuStreamWaitValue32");
  if (kind != "copy") return;
  thread_ = std::thread([this, context] {
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    const LocalMemory memory_to_copy(sizeof(std::uint64_t));
    begun_ = true;
    begun_.notify_one();
    std::uint64_t word = 0;
    download(&word, memory_to_copy.get(), sizeof word);
  });
  begun_.wait(false);
}

Hold::~Hold() {
  release();
  if (thread_.joinable()) thread_.join();
  cuStreamSynchronize(stream_);
  cuStreamDestroy(stream_);
  cuMemFreeHost(told_);
}

void Hold::release() {
  if (shared_ != 0) check(cuMemFree(shared_), "cuMemFree");
  shared_ = 0;
  std::atomic_ref(*told_).store(1);
  std::atomic_ref(*told_).notify_all();
}

}  // namespace ckpt::examples
