// SPDX-License-Identifier: Apache-2.0
// Tests of the order on and between streams, of events, and of host functions.
#include <atomic>
#include <memory>
#include <thread>

#include "tests/conformance/support/support.h"

namespace conformance {
namespace {

class StreamTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_OK(api().cuStreamCreate(&one_, CU_STREAM_DEFAULT));
    ASSERT_OK(api().cuStreamCreate(&two_, CU_STREAM_NON_BLOCKING));
    ASSERT_OK(api().cuEventCreate(&event_, CU_EVENT_DEFAULT));
    ASSERT_OK(api().cuMemAlloc_v2(&memory_, kBytes));
    ASSERT_OK(api().cuMemsetD8_v2(memory_, 0, kBytes));
    ASSERT_OK(api().cuCtxSynchronize());
  }
  void TearDown() override {
    if (memory_ != 0) {
      EXPECT_OK(api().cuMemFree_v2(memory_));
      EXPECT_OK(api().cuEventDestroy_v2(event_));
      EXPECT_OK(api().cuStreamDestroy_v2(one_));
      EXPECT_OK(api().cuStreamDestroy_v2(two_));
    }
    DriverTest::TearDown();
  }
  static constexpr std::size_t kBytes = 4 * kMiB;
  CUstream one_ = nullptr;
  CUstream two_ = nullptr;
  CUevent event_ = nullptr;
  CUdeviceptr memory_ = 0;
};

TEST_F(StreamTest, WorkOfOneStreamRunsInOrder) {
  const CUmodule module = load_kernels();
  const CUfunction add = kernel(module, "add_one");
  ASSERT_OK(api().cuMemsetD8Async(memory_, 0, kBytes, one_));
  for (int i = 0; i < 500; i++) {
    ASSERT_OK(launch(add, 2, 128, one_, std::uint64_t{memory_}, std::uint64_t{1000}));
  }
  void* pinned = nullptr;
  ASSERT_OK(api().cuMemHostAlloc(&pinned, 4000, 0));
  ASSERT_OK(api().cuMemcpyDtoHAsync_v2(pinned, memory_, 4000, one_));
  ASSERT_OK(api().cuMemsetD8Async(memory_, 9, kBytes, one_));
  ASSERT_OK(api().cuStreamSynchronize(one_));
  EXPECT_EQ(500U, static_cast<std::uint32_t*>(pinned)[0]);
  EXPECT_EQ(500U, static_cast<std::uint32_t*>(pinned)[999]);
  EXPECT_EQ(std::vector<std::uint8_t>(4, 9), read_bytes(memory_, 4));
  EXPECT_OK(api().cuMemFreeHost(pinned));
  EXPECT_OK(api().cuModuleUnload(module));
}

TEST_F(StreamTest, AStreamIsNotReadyUntilItsWorkIsDone) {
  EXPECT_OK(api().cuStreamQuery(one_));
  Gate gate(one_);
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, api().cuStreamQuery(one_));
  ASSERT_OK(api().cuEventRecord(event_, one_));
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, api().cuEventQuery(event_));
  EXPECT_OK(api().cuStreamSynchronize(two_));
  gate.open();
  EXPECT_OK(api().cuEventSynchronize(event_));
  EXPECT_OK(api().cuStreamSynchronize(one_));
  EXPECT_OK(api().cuStreamQuery(one_));
}

TEST_F(StreamTest, AStreamWaitsForAnEventOfAnotherStream) {
  Gate gate(one_);
  ASSERT_OK(api().cuMemsetD8Async(memory_, 1, kBytes, one_));
  ASSERT_OK(api().cuEventRecord(event_, one_));
  ASSERT_OK(api().cuStreamWaitEvent(two_, event_, 0));
  ASSERT_OK(api().cuMemsetD8Async(memory_, 2, 1, two_));
  EXPECT_CUDA(CUDA_ERROR_NOT_READY, api().cuStreamQuery(two_));
  gate.open();
  ASSERT_OK(api().cuStreamSynchronize(two_));
  EXPECT_EQ((std::vector<std::uint8_t>{2, 1}), read_bytes(memory_, 2));
}

TEST_F(StreamTest, TheDefaultStreamAndBlockingStreamsWaitForEachOther) {
  CUevent by_default = nullptr;
  ASSERT_OK(api().cuEventCreate(&by_default, CU_EVENT_DEFAULT));
  {
    Gate gate(one_);
    ASSERT_OK(api().cuEventRecord(by_default, nullptr));
    EXPECT_CUDA(CUDA_ERROR_NOT_READY, api().cuEventQuery(by_default));
    CUstream later = nullptr;
    ASSERT_OK(api().cuStreamCreate(&later, CU_STREAM_DEFAULT));
    ASSERT_OK(api().cuEventRecord(event_, later));
    EXPECT_CUDA(CUDA_ERROR_NOT_READY, api().cuEventQuery(event_));
    ASSERT_OK(api().cuStreamDestroy_v2(later));
    EXPECT_OK(api().cuStreamSynchronize(two_));  // a non-blocking stream is not affected
  }
  EXPECT_OK(api().cuEventSynchronize(event_));
  EXPECT_OK(api().cuEventQuery(by_default));
  EXPECT_OK(api().cuEventDestroy_v2(by_default));
}

TEST_F(StreamTest, AnEventThatWasNeverRecordedIsComplete) {
  EXPECT_OK(api().cuEventQuery(event_));
  EXPECT_OK(api().cuEventSynchronize(event_));
  EXPECT_OK(api().cuStreamWaitEvent(one_, event_, 0));
}

TEST_F(StreamTest, ElapsedTimeRequiresRecordedEventsWithTiming) {
  CUevent end = nullptr;
  CUevent untimed = nullptr;
  ASSERT_OK(api().cuEventCreate(&end, CU_EVENT_DEFAULT));
  ASSERT_OK(api().cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
  float milliseconds = -1;
  EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, api().cuEventElapsedTime(&milliseconds, event_, end));
  ASSERT_OK(api().cuEventRecord(event_, one_));
  ASSERT_OK(api().cuMemsetD8Async(memory_, 3, kBytes, one_));
  ASSERT_OK(api().cuEventRecord(end, one_));
  ASSERT_OK(api().cuEventRecord(untimed, one_));
  ASSERT_OK(api().cuStreamSynchronize(one_));
  EXPECT_OK(api().cuEventElapsedTime(&milliseconds, event_, end));
  EXPECT_GT(milliseconds, 0);
  EXPECT_CUDA(CUDA_ERROR_INVALID_HANDLE, api().cuEventElapsedTime(&milliseconds, event_, untimed));
  EXPECT_OK(api().cuEventDestroy_v2(end));
  EXPECT_OK(api().cuEventDestroy_v2(untimed));
}

TEST_F(StreamTest, HostFunctionsRunInStreamOrder) {
  std::atomic<int> calls{0};
  for (int i = 0; i < 20; i++) {
    ASSERT_OK(api().cuLaunchHostFunc(
        one_, [](void* count) { ++*static_cast<std::atomic<int>*>(count); }, &calls));
    ASSERT_OK(api().cuMemsetD8Async(memory_, static_cast<unsigned char>(i), 16, one_));
  }
  ASSERT_OK(api().cuStreamSynchronize(one_));
  EXPECT_EQ(20, calls.load());
  EXPECT_EQ(19, read_bytes(memory_, 1)[0]);
}

TEST_F(StreamTest, MemoryOperationsAcceptStreamsOfOtherContexts) {
  CUstream stream = nullptr;
  ASSERT_OK(api().cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  CUcontext other = nullptr;
  ASSERT_OK(api().cuCtxCreate_v2(&other, 0, 0));
  EXPECT_OK(api().cuMemsetD8Async(memory_, 3, 16, stream));
  EXPECT_OK(api().cuStreamSynchronize(stream));
  EXPECT_OK(api().cuCtxDestroy_v2(other));
  ASSERT_OK(api().cuCtxSetCurrent(context_));
  EXPECT_EQ(3, read_bytes(memory_, 1)[0]);
  EXPECT_OK(api().cuStreamDestroy_v2(stream));
}

TEST_F(StreamTest, WorkBeyondTheQueueCapacityIsAccepted) {
  const std::vector<std::uint8_t> bytes(8192, 0x66);
  auto gate = std::make_unique<Gate>(one_);
  // The pageable sources are small enough to be staged. The caller may change them at once.
  std::vector<std::uint8_t> changing(256, 0);
  for (int i = 0; i < 50; i++) {
    changing.assign(changing.size(), static_cast<std::uint8_t>(i));
    ASSERT_OK(
        api().cuMemcpyHtoDAsync_v2(memory_ + 256 * static_cast<unsigned>(i), changing.data(), 256, one_));
  }
  gate.reset();
  for (int i = 0; i < 2000; i++)
    ASSERT_OK(api().cuMemcpyHtoDAsync_v2(memory_ + kMiB, bytes.data(), 8192, one_));
  ASSERT_OK(api().cuStreamSynchronize(one_));
  for (unsigned i = 0; i < 50; i++) EXPECT_EQ(i, read_bytes(memory_ + 256 * i + 255, 1)[0]);
  EXPECT_EQ(0x66, read_bytes(memory_ + kMiB + 8191, 1)[0]);
}

// Every thread adds to its own numbers on its own stream, and sometimes hands over to the next thread's
// stream by an event. It also waits often. A lost wake-up hangs this test; a lost order gives a wrong sum.
TEST_F(StreamTest, ThreadsWithSeparateStreamsDoNotDisturbEachOther) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 600;
  const CUmodule module = load_kernels();
  const CUfunction add = kernel(module, "add_one");
  std::vector<CUstream> streams(kThreads);
  for (CUstream& stream : streams) ASSERT_OK(api().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  std::atomic<int> failures{0};
  const auto check = [&failures](CUresult result) { failures += result != CUDA_SUCCESS ? 1 : 0; };
  const auto work = [&](int index) {
    const CUdeviceptr own = memory_ + static_cast<unsigned>(index) * kMiB;
    CUevent done = nullptr;
    check(api().cuCtxPushCurrent_v2(context_));
    check(api().cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
    for (int round = 0; round < kRounds; round++) {
      const CUstream stream = streams[static_cast<std::size_t>((index + round / 50) % kThreads)];
      check(api().cuStreamWaitEvent(stream, done, 0));
      check(launch(add, 2, 32, stream, std::uint64_t{own}, std::uint64_t{64}));
      check(api().cuEventRecord(done, stream));
      std::uint32_t now = 0;
      if (round % 3 == 0) check(api().cuEventSynchronize(done));
      if (round % 7 == 0) check(api().cuStreamSynchronize(stream));
      if (round % 3 == 0) check(api().cuMemcpyDtoH_v2(&now, own, sizeof now));
      if (round % 3 == 0) failures += now != static_cast<std::uint32_t>(round) + 1 ? 1 : 0;
    }
    check(api().cuEventSynchronize(done));
    check(api().cuEventDestroy_v2(done));
    check(api().cuCtxPopCurrent_v2(nullptr));
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; i++) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(0, failures.load());
  for (unsigned i = 0; i < kThreads; i++)
    EXPECT_EQ(kRounds, static_cast<int>(read_words(memory_ + i * kMiB, 1)[0]));
  for (const CUstream stream : streams) EXPECT_OK(api().cuStreamDestroy_v2(stream));
  EXPECT_OK(api().cuModuleUnload(module));
}

}  // namespace
}  // namespace conformance
