// SPDX-License-Identifier: Apache-2.0
// Tests of the lookup of functions by name and version, of threads' own default streams, of occupancy, and of
// properties of contexts and pointers.
#include <thread>

#include "tests/conformance/support/support.h"

namespace conformance {
namespace {

class LookupTest : public DriverTest {
 protected:
  static void* find(const char* name, int version, cuuint64_t flags = CU_GET_PROC_ADDRESS_DEFAULT) {
    void* function = nullptr;
    CUdriverProcAddressQueryResult status{};
    EXPECT_OK(api().cuGetProcAddress_v2(name, &function, version, flags, &status)) << name;
    EXPECT_EQ(CU_GET_PROC_ADDRESS_SUCCESS, status);
    return function;
  }
};

TEST_F(LookupTest, TheRequestedVersionSelectsTheFunction) {
  EXPECT_NE(find("cuMemAlloc", 2000), find("cuMemAlloc", 3020));
  EXPECT_EQ(find("cuMemAlloc", 12000), find("cuMemAlloc", 3020));
  const auto allocate = reinterpret_cast<decltype(&::cuMemAlloc_v2)>(find("cuMemAlloc", 12000));
  CUdeviceptr memory = 0;
  EXPECT_OK(allocate(&memory, 4096));
  EXPECT_OK(api().cuMemFree_v2(memory));
  EXPECT_NE(find("cuEventElapsedTime", 12000), find("cuEventElapsedTime", 12080));
}

// The driver reports neither case as an error. The reason is in the status (580.159.04).
TEST_F(LookupTest, LookupReportsAnUnknownNameAndAnOldVersionDifferently) {
  void* function = &function;
  CUdriverProcAddressQueryResult status{};
  EXPECT_OK(api().cuGetProcAddress_v2("cuNoSuchThing", &function, 12000, 0, &status));
  EXPECT_EQ(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, status);
  EXPECT_EQ(nullptr, function);
  EXPECT_OK(api().cuGetProcAddress_v2("cuNoSuchThing", &function, 12000, 0, nullptr));
  EXPECT_OK(api().cuGetProcAddress_v2("cuMemCreate", &function, 9000, 0, &status));
  EXPECT_EQ(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, status);
}

// Through its _ptsz name, a call with the null stream uses the thread's own stream, which does not wait for
// other streams.
TEST_F(LookupTest, AThreadHasItsOwnDefaultStream) {
  const cuuint64_t own = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  const auto set = reinterpret_cast<decltype(&::cuMemsetD8Async)>(find("cuMemsetD8Async", 12000, own));
  const auto wait =
      reinterpret_cast<decltype(&::cuStreamSynchronize)>(find("cuStreamSynchronize", 12000, own));
  EXPECT_NE(reinterpret_cast<void*>(api().cuMemsetD8Async.function), reinterpret_cast<void*>(set));
  CUdeviceptr memory = 0;
  ASSERT_OK(api().cuMemAlloc_v2(&memory, 4096));
  {
    CUstream held = nullptr;
    ASSERT_OK(api().cuStreamCreate(&held, CU_STREAM_DEFAULT));
    Gate gate(held);
    std::thread other([&] {
      EXPECT_OK(api().cuCtxSetCurrent(context_));
      EXPECT_OK(set(memory, 0x51, 4096, nullptr));
      EXPECT_OK(wait(nullptr));
    });
    other.join();
    gate.open();
    EXPECT_OK(api().cuStreamSynchronize(held));
    EXPECT_OK(api().cuStreamDestroy_v2(held));
  }
  EXPECT_EQ(0x51, read_bytes(memory, 1)[0]);
  EXPECT_OK(api().cuMemFree_v2(memory));
}

TEST_F(LookupTest, FunctionAttributesAndOccupancyAreReported) {
  const CUmodule module = load_kernels();
  const CUfunction function = kernel(module, "add_one");
  int threads = 0;
  ASSERT_OK(api().cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
  EXPECT_GE(threads, 32);
  int blocks = 0;
  int fewer = 0;
  ASSERT_OK(api().cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 32, 0));
  ASSERT_OK(api().cuOccupancyMaxActiveBlocksPerMultiprocessor(&fewer, function, 1024, 0));
  EXPECT_GE(blocks, fewer);
  EXPECT_GE(fewer, 1);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE,
              api().cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 0, 0));
  EXPECT_OK(api().cuModuleUnload(module));
}

TEST_F(LookupTest, StreamCallbacksRunInStreamOrder) {
  static int seen = 0;
  seen = 0;
  const CUstreamCallback callback = [](CUstream, CUresult result, void* data) {
    seen = result == CUDA_SUCCESS ? seen * 10 + *static_cast<int*>(data) : -1;
  };
  int one = 1;
  int two = 2;
  CUstream stream = nullptr;
  ASSERT_OK(api().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, api().cuStreamAddCallback(stream, callback, &one, 1));
  ASSERT_OK(api().cuStreamAddCallback(stream, callback, &one, 0));
  ASSERT_OK(api().cuStreamAddCallback(stream, callback, &two, 0));
  ASSERT_OK(api().cuStreamSynchronize(stream));
  EXPECT_EQ(12, seen);
  EXPECT_OK(api().cuStreamDestroy_v2(stream));
}

TEST_F(LookupTest, AContextReportsItsDeviceAndState) {
  unsigned flags = 0;
  int active = 0;
  ASSERT_OK(api().cuDevicePrimaryCtxGetState(0, &flags, &active));
  EXPECT_EQ(1, active);
  int least = 1;
  int greatest = 1;
  ASSERT_OK(api().cuCtxGetStreamPriorityRange(&least, &greatest));
  EXPECT_LE(greatest, least);
  CUstream stream = nullptr;
  ASSERT_OK(api().cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest));
  int priority = 100;
  ASSERT_OK(api().cuStreamGetPriority(stream, &priority));
  EXPECT_EQ(greatest, priority);
  EXPECT_OK(api().cuStreamDestroy_v2(stream));
  std::size_t bytes = 0;
  EXPECT_OK(api().cuCtxGetLimit(&bytes, CU_LIMIT_STACK_SIZE));
  EXPECT_GT(bytes, 0U);
}

}  // namespace
}  // namespace conformance
