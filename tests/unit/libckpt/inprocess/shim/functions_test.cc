// SPDX-License-Identifier: Apache-2.0
// Calls the shim's functions like a program, over the driver that LD_LIBRARY_PATH names. The tests cover the
// kinds of functions, the quiesce of all work on the GPU, and the identity of the GPUs after a move.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "libckpt/inprocess/shim/core/contexts.h"
#include "libckpt/inprocess/shim/functions/exports.h"
#include "libckpt/inprocess/shim/functions/kinds.h"

namespace ckpt::shim {
namespace {

constexpr Nanos kLong = 60'000'000'000;
constexpr Nanos kShort = 50'000'000;

#define ASSERT_OK(call) ASSERT_EQ(CUDA_SUCCESS, call)
#define EXPECT_OK(call) EXPECT_EQ(CUDA_SUCCESS, call)

class FunctionsTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(cuInit(0));
    ASSERT_OK(cuDevicePrimaryCtxRetain(&context_, 0));
    ASSERT_OK(cuCtxSetCurrent(context_));
  }
  void TearDown() override {
    gate().open();
    set_identity(0, std::nullopt);
    cuDevicePrimaryCtxRelease_v2(0);
  }
  CUcontext context_ = nullptr;
};

// A host function that blocks its stream until it is released.
class Held {
 public:
  explicit Held(CUstream stream) {
    EXPECT_OK(cuLaunchHostFunc(
        stream, [](void* held) { static_cast<Held*>(held)->go_on_.get_future().wait(); }, this));
  }
  void release() { go_on_.set_value(); }

 private:
  std::promise<void> go_on_;
};

// A row of this test's own, so that each kind is tested with a successful and a failed call.
struct Refused {
  static constexpr const char* kName = "cuDeviceGetCount";
  static constexpr auto kReal = &RealDriver::cuDeviceGetCount;
  static constexpr Kind kKind = Kind::kRefuse;
};

TEST_F(FunctionsTest, UnmovableCallIsReportedAfterItsSuccess) {
  const auto refused = &Through<Refused, CUresult (*RealDriver::*)(int*)>::call;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, refused(nullptr));
  EXPECT_FALSE(reason());
  int count = 0;
  EXPECT_OK(refused(&count));
  EXPECT_GT(count, 0);
  ASSERT_TRUE(reason());
  EXPECT_STREQ("cuDeviceGetCount", *reason());
  not_movable("cuSomethingLater");
  EXPECT_STREQ("cuDeviceGetCount", *reason());
}

TEST_F(FunctionsTest, AClosedGateBlocksGatedCallsAndHooksButNoQueries) {
  ASSERT_TRUE(gate().close(kLong));
  int count = 0;
  EXPECT_OK(cuDeviceGetCount(&count));  // would never return if the call were blocked
  std::atomic<int> passed{0};
  std::thread submits([&] {
    cuCtxSetCurrent(context_);
    CUevent event = nullptr;
    EXPECT_OK(cuEventCreate(&event, 0));  // a function of the kind "gate"
    ++passed;
    EXPECT_OK(cuEventDestroy_v2(event));
  });
  std::thread asks([&] {
    char id[32];
    EXPECT_OK(cuDeviceGetPCIBusId(id, sizeof id, 0));  // a function of the kind "hook"
    ++passed;
  });
  ASSERT_TRUE(gate().drain(kLong));
  EXPECT_EQ(0, passed);
  gate().open();
  submits.join();
  asks.join();
  EXPECT_EQ(2, passed);
}

TEST_F(FunctionsTest, QuiesceWaitsForTheWorkOfEveryContext) {
  CUcontext made = nullptr;
  ASSERT_OK(cuCtxCreate_v2(&made, 0, 1));
  CUstream stream = nullptr;
  ASSERT_OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  Held held(stream);
  std::latch waiting(1);
  std::atomic<bool> returned{false};
  std::thread waiter([&] {
    cuCtxSetCurrent(made);
    waiting.count_down();
    EXPECT_OK(cuStreamSynchronize(stream));
    returned = true;
  });
  waiting.wait();
  const Result<void> late = quiesce(kShort);
  ASSERT_FALSE(late);
  EXPECT_EQ(ErrorCode::kTimedOut, late.error().code());
  EXPECT_NE(std::string::npos, late.error().message().find("cuCtxSynchronize")) << late.error().message();
  EXPECT_FALSE(gate().closed());
  EXPECT_FALSE(returned);

  held.release();
  const Result<void> quiet = quiesce(kLong);
  ASSERT_TRUE(quiet) << quiet.error().to_string();
  EXPECT_TRUE(gate().closed());
  EXPECT_OK(real().cuStreamQuery(stream));
  gate().open();
  waiter.join();
  EXPECT_TRUE(returned);
  EXPECT_OK(cuCtxDestroy_v2(made));
  ASSERT_TRUE(quiesce(kLong));  // quiesce does not query the destroyed context
}

TEST_F(FunctionsTest, NothingIsInFlightAfterQuiesceWithManyThreads) {
  constexpr int kThreads = 6;
  constexpr std::size_t kWords = 4096;
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> rounds{0};
  std::atomic<int> callbacks{0};
  std::vector<CUstream> streams(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    ASSERT_OK(cuStreamCreate(&streams[static_cast<std::size_t>(i)], i % 2 == 0 ? CU_STREAM_NON_BLOCKING : 0));
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      cuCtxSetCurrent(context_);
      CUstream stream = streams[static_cast<std::size_t>(i)];
      CUdeviceptr memory = 0;
      ASSERT_OK(cuMemAlloc_v2(&memory, kWords * 4));
      std::vector<unsigned> words(kWords);
      for (unsigned round = 1; !stop; ++round) {
        ASSERT_OK(cuMemsetD32Async(memory, round, kWords, stream));
        ASSERT_OK(cuLaunchHostFunc(
            stream, [](void* counter) { ++*static_cast<std::atomic<int>*>(counter); }, &callbacks));
        if (round % 3 == 0) {
          ASSERT_OK(cuStreamSynchronize(stream));
        }
        ASSERT_OK(cuMemcpyDtoHAsync_v2(words.data(), memory, kWords * 4, stream));
        ASSERT_OK(cuStreamSynchronize(stream));
        ASSERT_EQ(round, words[kWords - 1]);
        ++rounds;
      }
      ASSERT_OK(cuMemFree_v2(memory));
    });
  }
  for (int i = 0; i < 20; ++i) {
    const std::uint64_t before = rounds;
    while (rounds < before + kThreads) std::this_thread::yield();
    const Result<void> quiet = quiesce(kLong);
    ASSERT_TRUE(quiet) << quiet.error().to_string();
    const int callbacks_then = callbacks;
    for (CUstream stream : streams) EXPECT_OK(real().cuStreamQuery(stream));
    EXPECT_EQ(callbacks_then, callbacks);
    gate().open();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  for (CUstream stream : streams) EXPECT_OK(cuStreamDestroy_v2(stream));
}

TEST_F(FunctionsTest, MovedDeviceReportsItsCurrentGpu) {
  char before[32];
  ASSERT_OK(cuDeviceGetPCIBusId(before, sizeof before, 0));
  Identity identity{.pci_domain = 0x1a, .pci_bus = 0xb3, .pci_device = 0x05};
  for (std::size_t i = 0; i < identity.uuid.size(); ++i) identity.uuid[i] = static_cast<char>(0x40 + i);
  set_identity(0, identity);

  char now[32];
  ASSERT_OK(cuDeviceGetPCIBusId(now, sizeof now, 0));
  EXPECT_STREQ("001A:B3:05.0", now);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, cuDeviceGetPCIBusId(now, 4, 0));
  CUuuid uuid{};
  ASSERT_OK(cuDeviceGetUuid_v2(&uuid, 0));
  EXPECT_EQ(0x4f, uuid.bytes[15]);
  int bus = 0;
  ASSERT_OK(cuDeviceGetAttribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, 0));
  EXPECT_EQ(0xb3, bus);
  CUdevice device = -1;
  ASSERT_OK(cuDeviceGetByPCIBusId(&device, "001A:B3:05.0"));
  EXPECT_EQ(0, device);

  set_identity(0, std::nullopt);
  ASSERT_OK(cuDeviceGetPCIBusId(now, sizeof now, 0));
  EXPECT_STREQ(before, now);
}

TEST_F(FunctionsTest, ForkedChildIsNotTreatedAsTheRank) {
  set_identity(0, Identity{.pci_bus = 0xb3});
  ASSERT_TRUE(gate().close(kLong));
  const pid_t child = ::fork();
  if (child == 0) {
    int count = 0;
    char id[32] = "";
    const CUresult answer =
        cuDeviceGetPCIBusId(id, sizeof id, 0);  // the driver's own result, whatever its value is
    ::_exit(forgotten() && !gate().closed() && answer == real().cuDeviceGetPCIBusId(id, sizeof id, 0) &&
                    cuDeviceGetCount(&count) == real().cuDeviceGetCount(&count) &&
                    std::string(id).find("B3") == std::string::npos
                ? 0
                : 1);
  }
  int status = -1;
  ASSERT_EQ(child, ::waitpid(child, &status, 0));
  EXPECT_EQ(0, status);
  EXPECT_FALSE(forgotten());
}

TEST_F(FunctionsTest, ProcAddressesBelongToTheShim) {
  void* function = nullptr;
  CUdriverProcAddressQueryResult status{};
  ASSERT_OK(cuGetProcAddress_v2("cuMemAlloc", &function, 12000, 0, &status));
  EXPECT_EQ(exported_by_name("cuMemAlloc_v2")->function, function);
  ASSERT_OK(cuGetProcAddress_v2("cuMemAlloc", nullptr, 12000, 0, &status) == CUDA_ERROR_INVALID_VALUE
                ? CUDA_SUCCESS
                : CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(nullptr, exported_by_name("cuNobodyHasThis"));
  int own = 0;
  EXPECT_EQ(&own, exported_for(&own, "cuUnknown"));  // functions that are not in the table are returned
                                                     // unchanged
}

}  // namespace
}  // namespace ckpt::shim
