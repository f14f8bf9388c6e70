// SPDX-License-Identifier: Apache-2.0
// Tests each cause that can make a pause wait without an end. The pause ends at its time limit and names the
// cause, and the program continues as if no pause had been requested. Once the cause has ended, the next
// pause succeeds.
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "libckpt/inprocess/shim/core/contexts.h"
#include "libckpt/inprocess/shim/core/gate.h"

namespace ckpt::shim {
namespace {

constexpr Nanos kLong = 60'000'000'000;
constexpr Nanos kShort = 50'000'000;

#define ASSERT_OK(call) ASSERT_EQ(CUDA_SUCCESS, call)
#define EXPECT_OK(call) EXPECT_EQ(CUDA_SUCCESS, call)

class PauseTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(cuInit(0));
    ASSERT_OK(cuDevicePrimaryCtxRetain(&context_, 0));
    ASSERT_OK(cuCtxSetCurrent(context_));
    ASSERT_OK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    ASSERT_OK(cuMemHostAlloc(reinterpret_cast<void**>(&flag_), 4096, CU_MEMHOSTALLOC_DEVICEMAP));
    *flag_ = 0;
    ASSERT_OK(cuMemHostGetDevicePointer_v2(&device_flag_, flag_, 0));
    ASSERT_OK(cuMemAlloc_v2(&memory_, 4096));
  }
  void TearDown() override {
    gate().open();
    EXPECT_OK(cuStreamSynchronize(stream_));
    EXPECT_OK(cuMemFree_v2(memory_));
    EXPECT_OK(cuMemFreeHost(flag_));
    EXPECT_OK(cuStreamDestroy_v2(stream_));
    cuDevicePrimaryCtxRelease_v2(0);
  }
  void set_flag() { std::atomic_ref(*flag_).store(1); }

  // Checks that a pause fails, and that the message contains `reason`.
  static void expect_no_pause(const std::string& reason) {
    const Result<void> paused = quiesce(kShort);
    ASSERT_FALSE(paused) << reason;
    EXPECT_EQ(ErrorCode::kTimedOut, paused.error().code());
    EXPECT_NE(std::string::npos, paused.error().message().find(reason)) << paused.error().message();
    EXPECT_FALSE(gate().closed());
    CUevent event = nullptr;  // the open gate lets the program's calls pass
    EXPECT_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    EXPECT_OK(cuEventDestroy_v2(event));
  }
  static void expect_pause() {
    const Result<void> paused = quiesce(kLong);
    ASSERT_TRUE(paused) << paused.error().message();
    EXPECT_TRUE(gate().closed());
    gate().open();
  }
  // Starts a thread of the program in a call that waits for `stream_`. Returns when the thread is inside the
  // call.
  std::thread in_call(GateSlot::Place place, std::function<void()> call) {
    std::atomic<GateSlot*> slot{nullptr};
    std::thread thread([&slot, call = std::move(call), this] {
      EXPECT_OK(cuCtxSetCurrent(context_));
      { const GateScope first("a thread's first call"); }  // creates the thread's slot
      slot.store(t_gate_slot);
      call();
    });
    while (slot.load() == nullptr || slot.load()->place.load() != place) std::this_thread::yield();
    return thread;
  }

  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  std::uint32_t* flag_ = nullptr;
  CUdeviceptr device_flag_ = 0;
  CUdeviceptr memory_ = 0;
};

// Tries twice, since the abandoned wait for the GPU continues during the second try.
TEST_F(PauseTest, PauseFailsDuringAnEndlessKernel) {
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  ASSERT_OK(cuModuleLoad(&module, PAUSE_KERNELS));
  ASSERT_OK(cuModuleGetFunction(&kernel, module, "run_until"));
  void* arguments[] = {&device_flag_};
  ASSERT_OK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream_, arguments, nullptr));
  expect_no_pause("cuCtxSynchronize");
  expect_no_pause("cuCtxSynchronize");
  set_flag();
  expect_pause();
  EXPECT_OK(cuModuleUnload(module));
}

TEST_F(PauseTest, PauseFailsDuringAWaitForAnUnwrittenValue) {
  ASSERT_OK(cuStreamWaitValue32_v2(stream_, device_flag_, 1, CU_STREAM_WAIT_VALUE_EQ));
  expect_no_pause("cuCtxSynchronize");
  set_flag();
  expect_pause();
}

TEST_F(PauseTest, PauseFailsDuringABlockedHostCallback) {
  ASSERT_OK(cuLaunchHostFunc(
      stream_, [](void* flag) { std::atomic_ref(*static_cast<std::uint32_t*>(flag)).wait(0); }, flag_));
  expect_no_pause("cuCtxSynchronize");
  set_flag();
  std::atomic_ref(*flag_).notify_all();
  expect_pause();
}

// The callback waits for a thread of the program that the closed gate blocks. A pause must not deadlock the
// two.
TEST_F(PauseTest, PauseFailsIfAHostCallbackNeedsACallOfTheProgram) {
  ASSERT_OK(cuLaunchHostFunc(
      stream_, [](void* flag) { std::atomic_ref(*static_cast<std::uint32_t*>(flag)).wait(0); }, flag_));
  std::atomic<bool> over{false};
  std::thread caller([&over, this] {
    EXPECT_OK(cuCtxSetCurrent(context_));
    while (!gate().closed()) std::this_thread::yield();
    EXPECT_OK(cuMemsetD8_v2(memory_, 1, 16));  // blocked until the pause gives up
    set_flag();
    std::atomic_ref(*flag_).notify_all();
    over = true;
  });
  EXPECT_FALSE(quiesce(kShort));
  while (!over) {  // the caller may not have seen the closed gate yet
    if (quiesce(kShort)) gate().open();
  }
  caller.join();
  expect_pause();
}

TEST_F(PauseTest, PauseFailsDuringACallThatBlocksInsideTheDriver) {
  ASSERT_OK(cuStreamWaitValue32_v2(CU_STREAM_LEGACY, device_flag_, 1, CU_STREAM_WAIT_VALUE_EQ));
  std::uint32_t word = 0;
  std::thread copies =
      in_call(GateSlot::kInside, [&] { EXPECT_OK(cuMemcpyDtoH_v2(&word, memory_, sizeof word)); });
  expect_no_pause("cuMemcpyDtoH_v2");
  set_flag();
  copies.join();
  expect_pause();
}

TEST_F(PauseTest, PauseErrorNamesAThreadThatWaitsForTheWork) {
  ASSERT_OK(cuStreamWaitValue32_v2(stream_, device_flag_, 1, CU_STREAM_WAIT_VALUE_EQ));
  std::thread waits = in_call(GateSlot::kWaiting, [&] { EXPECT_OK(cuStreamSynchronize(stream_)); });
  expect_no_pause("cuStreamSynchronize");
  CUevent event = nullptr;
  ASSERT_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  ASSERT_OK(cuEventRecord(event, stream_));
  set_flag();
  waits.join();
  EXPECT_OK(cuEventSynchronize(event));
  expect_pause();
  EXPECT_OK(cuEventDestroy_v2(event));
}

// A free waits for the work of its context, as the driver's free does. The free itself must not delay a
// pause.
TEST_F(PauseTest, PauseFailsDuringAFreeThatWaitsForTheWork) {
  CUdeviceptr freed = 0;
  ASSERT_OK(cuMemAlloc_v2(&freed, 4096));
  ASSERT_OK(cuStreamWaitValue32_v2(stream_, device_flag_, 1, CU_STREAM_WAIT_VALUE_EQ));
  std::thread frees = in_call(GateSlot::kWaiting, [&] { EXPECT_OK(cuMemFree_v2(freed)); });
  expect_no_pause("cuMemFree_v2");
  set_flag();
  frees.join();
  expect_pause();
}

}  // namespace
}  // namespace ckpt::shim
