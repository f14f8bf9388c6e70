// SPDX-License-Identifier: Apache-2.0
// Tests that a capture delays a pause only while the capture lasts, however the capture ends. A job must
// never permanently lose the ability to pause.
#include <gtest/gtest.h>

#include <latch>
#include <string>
#include <thread>

#include "libckpt/inprocess/shim/core/captures.h"
#include "libckpt/inprocess/shim/core/contexts.h"
#include "libckpt/inprocess/shim/core/gate.h"

namespace ckpt::shim {
namespace {

constexpr Nanos kLong = 60'000'000'000;
constexpr Nanos kShort = 20'000'000;

#define ASSERT_OK(call) ASSERT_EQ(CUDA_SUCCESS, call)
#define EXPECT_OK(call) EXPECT_EQ(CUDA_SUCCESS, call)

class StreamEndsTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(cuInit(0));
    ASSERT_OK(cuDevicePrimaryCtxRetain(&context_, 0));
    ASSERT_OK(cuCtxSetCurrent(context_));
  }
  void TearDown() override {
    gate().open();
    cuCtxSetCurrent(nullptr);
    cuDevicePrimaryCtxRelease_v2(0);
    EXPECT_FALSE(captures_open());
  }
  static CUstream stream() {
    CUstream made = nullptr;
    EXPECT_OK(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    return made;
  }
  static CUstream captured() {
    CUstream made = stream();
    EXPECT_OK(cuStreamBeginCapture_v2(made, CU_STREAM_CAPTURE_MODE_RELAXED));
    return made;
  }
  static void expect_held_up() {
    const Result<void> paused = quiesce(kShort);
    ASSERT_FALSE(paused);
    EXPECT_NE(std::string::npos, paused.error().message().find("cuStreamBeginCapture"))
        << paused.error().message();
    EXPECT_FALSE(gate().closed());
  }
  static void expect_pauses() {
    const Result<void> paused = quiesce(kLong);
    ASSERT_TRUE(paused) << paused.error().message();
    gate().open();
  }
  CUcontext context_ = nullptr;
};

TEST_F(StreamEndsTest, DestroyingAStreamEndsItsCapture) {
  CUstream first = captured();
  CUstream second = captured();
  expect_held_up();
  ASSERT_OK(cuStreamDestroy_v2(first));
  expect_held_up();
  ASSERT_OK(cuStreamDestroy(second));
  expect_pauses();
}

TEST_F(StreamEndsTest, AFailedDestroyEndsNoCapture) {
  CUstream begun = captured();
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2(CU_STREAM_PER_THREAD));
  expect_held_up();
  CUgraph graph = nullptr;
  ASSERT_OK(cuStreamEndCapture(begun, &graph));
  expect_pauses();
  ASSERT_OK(cuStreamDestroy_v2(begun));
  ASSERT_OK(cuGraphDestroy(graph));
  expect_pauses();
}

// A handle may be reused at once: the next stream has its own capture.
TEST_F(StreamEndsTest, ANewStreamWithTheSameHandleIsADifferentStream) {
  for (int i = 0; i < 3; ++i) {
    CUstream begun = captured();
    expect_held_up();
    ASSERT_OK(cuStreamDestroy_v2(begun));
    expect_pauses();
  }
}

TEST_F(StreamEndsTest, DestroyingAContextEndsItsCaptures) {
  CUcontext made = nullptr;
  ASSERT_OK(cuCtxCreate_v2(&made, 0, 0));
  captured();
  captured();
  EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(context_));  // the primary context
  expect_held_up();
  ASSERT_OK(cuCtxDestroy_v2(made));
  expect_pauses();
}

TEST_F(StreamEndsTest, ResettingThePrimaryContextEndsItsCaptures) {
  captured();
  CUcontext again = nullptr;
  ASSERT_OK(cuDevicePrimaryCtxRetain(&again, 0));
  ASSERT_OK(cuDevicePrimaryCtxRelease_v2(0));  // not the last reference
  expect_held_up();
  ASSERT_OK(cuDevicePrimaryCtxReset_v2(0));
  expect_pauses();
  ASSERT_OK(cuDevicePrimaryCtxRetain(&context_, 0));
  ASSERT_OK(cuCtxSetCurrent(context_));
  captured();
  expect_held_up();
  ASSERT_OK(cuDevicePrimaryCtxRelease_v2(0));
  expect_pauses();
  ASSERT_OK(cuDevicePrimaryCtxRetain(&context_, 0));  // TearDown releases the context
}

TEST_F(StreamEndsTest, ThreadExitEndsTheCaptureOfItsStream) {
  std::latch begun(1);
  std::latch leave(1);
  std::thread thread([&] {
    ASSERT_OK(cuCtxSetCurrent(context_));
    ASSERT_OK(cuStreamBeginCapture_v2_ptsz(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED));
    begun.count_down();
    leave.wait();
  });
  begun.wait();
  expect_held_up();
  ASSERT_OK(cuStreamBeginCapture_v2(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
  CUgraph graph = nullptr;
  ASSERT_OK(cuStreamEndCapture_ptsz(nullptr, &graph));  // ends this thread's capture, not the other thread's
  ASSERT_OK(cuGraphDestroy(graph));
  expect_held_up();
  leave.count_down();
  thread.join();
  expect_pauses();
}

TEST_F(StreamEndsTest, CaptureEndsAfterAFailedEndCaptureCallIfTheDriverEndedTheCapture) {
  // Another stream took over work and did not rejoin: the capture has ended.
  CUstream origin = captured();
  CUstream other = stream();
  CUevent event = nullptr;
  ASSERT_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  ASSERT_OK(cuEventRecord(event, origin));
  ASSERT_OK(cuStreamWaitEvent(other, event, 0));
  CUdeviceptr memory = 0;
  CUgraph graph = nullptr;
  ASSERT_OK(cuMemAllocAsync(&memory, 512, other));
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(other, &graph));
  expect_held_up();
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(origin, &graph));
  expect_pauses();
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(origin, &graph));
  // Another thread may not end this capture, so the capture continues.
  ASSERT_OK(cuStreamBeginCapture_v2(origin, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  std::thread([&] {
    ASSERT_OK(cuCtxSetCurrent(context_));
    CUgraph none = nullptr;
    EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, cuStreamEndCapture(origin, &none));
  }).join();
  expect_held_up();
  ASSERT_OK(cuStreamEndCapture(origin, &graph));
  expect_pauses();
  ASSERT_OK(cuGraphDestroy(graph));
  ASSERT_OK(cuStreamDestroy_v2(other));
  ASSERT_OK(cuStreamDestroy_v2(origin));
  ASSERT_OK(cuEventDestroy_v2(event));
}

TEST_F(StreamEndsTest, AFailedBeginCaptureStartsNoCapture) {
  CUstream begun = captured();
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture_v2(begun, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
            cuStreamBeginCapture_v2(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED));
  ASSERT_OK(cuStreamDestroy_v2(begun));
  expect_pauses();
}

// A thread's own capture mode decides whether the thread may allocate during another thread's capture, as
// without the shim.
TEST_F(StreamEndsTest, AThreadInRelaxedModeAllocatesDuringACapture) {
  CUstream begun = stream();
  ASSERT_OK(cuStreamBeginCapture_v2(begun, CU_STREAM_CAPTURE_MODE_GLOBAL));
  const auto allocate = [&](CUstreamCaptureMode mode, CUresult expected) {
    std::thread([&] {
      ASSERT_OK(cuCtxSetCurrent(context_));
      ASSERT_OK(cuThreadExchangeStreamCaptureMode(&mode));
      EXPECT_EQ(CU_STREAM_CAPTURE_MODE_GLOBAL, mode);
      CUdeviceptr memory = 0;
      EXPECT_EQ(expected, cuMemAlloc_v2(&memory, 4096));
      if (memory != 0) {
        EXPECT_OK(cuMemFree_v2(memory));
      }
    }).join();
  };
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  allocate(CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_SUCCESS);
  allocate(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CUDA_SUCCESS);
  ASSERT_OK(cuStreamIsCapturing(begun, &status));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status);
  allocate(CU_STREAM_CAPTURE_MODE_GLOBAL, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CUgraph graph = nullptr;
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(begun, &graph));
  expect_pauses();
  ASSERT_OK(cuStreamDestroy_v2(begun));
}

}  // namespace
}  // namespace ckpt::shim
