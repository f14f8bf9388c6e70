// SPDX-License-Identifier: Apache-2.0
// Tests of stream-ordered allocations and memory pools.
#include "tests/conformance/support/support.h"

namespace conformance {
namespace {

class PoolTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    int supported = 0;
    ASSERT_OK(api().cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0));
    if (supported == 0) GTEST_SKIP() << "no pools";
    ASSERT_OK(api().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
  }
  void TearDown() override {
    if (stream_ != nullptr) {
      EXPECT_OK(api().cuStreamDestroy_v2(stream_));
    }
    DriverTest::TearDown();
  }
  static CUmemoryPool make_pool() {
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemoryPool pool = nullptr;
    EXPECT_OK(api().cuMemPoolCreate(&pool, &properties));
    return pool;
  }
  static cuuint64_t value(CUmemoryPool pool, CUmemPool_attribute attribute) {
    cuuint64_t value = 0;
    EXPECT_OK(api().cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
  }
  CUstream stream_ = nullptr;
};

TEST_F(PoolTest, MemoryIsAllocatedAndFreedInStreamOrder) {
  CUdeviceptr memory = 0;
  ASSERT_OK(api().cuMemAllocAsync(&memory, 3 * kMiB, stream_));
  ASSERT_OK(api().cuMemsetD8Async(memory, 0x21, 3 * kMiB, stream_));
  std::uint8_t last = 0;
  ASSERT_OK(api().cuMemcpyDtoHAsync_v2(&last, memory + 3 * kMiB - 1, 1, stream_));
  ASSERT_OK(api().cuMemFreeAsync(memory, stream_));
  ASSERT_OK(api().cuStreamSynchronize(stream_));
  EXPECT_EQ(0x21, last);
}

TEST_F(PoolTest, PoolMemoryCanBeFreedWithoutAStream) {
  CUdeviceptr memory = 0;
  ASSERT_OK(api().cuMemAllocAsync(&memory, 4096, stream_));
  ASSERT_OK(api().cuStreamSynchronize(stream_));
  EXPECT_OK(api().cuMemFree_v2(memory));
}

TEST_F(PoolTest, InvalidPointersAndSizesAreRefused) {
  CUdeviceptr memory = 0;
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, api().cuMemAllocAsync(nullptr, 4096, stream_));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, api().cuMemFreeAsync(0x1000, stream_));
  ASSERT_OK(api().cuMemAllocAsync(&memory, 4096, stream_));
  ASSERT_OK(api().cuMemFreeAsync(memory, stream_));
  ASSERT_OK(api().cuStreamSynchronize(stream_));
}

TEST_F(PoolTest, FreedMemoryBelowTheThresholdIsKeptUntilATrim) {
  const CUmemoryPool pool = make_pool();
  cuuint64_t keep = UINT64_MAX;
  ASSERT_OK(api().cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  CUdeviceptr memory = 0;
  ASSERT_OK(api().cuMemAllocFromPoolAsync(&memory, 32 * kMiB, pool, stream_));
  EXPECT_GE(value(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 32 * kMiB);
  ASSERT_OK(api().cuMemFreeAsync(memory, stream_));
  ASSERT_OK(api().cuStreamSynchronize(stream_));
  EXPECT_EQ(0U, value(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT));
  EXPECT_GE(value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 32 * kMiB);
  EXPECT_GE(value(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 32 * kMiB);
  CUdeviceptr again = 0;
  ASSERT_OK(api().cuMemAllocFromPoolAsync(&again, 32 * kMiB, pool, stream_));
  ASSERT_OK(api().cuMemFreeAsync(again, stream_));
  ASSERT_OK(api().cuStreamSynchronize(stream_));
  ASSERT_OK(api().cuMemPoolTrimTo(pool, 0));
  EXPECT_EQ(0U, value(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT));
  EXPECT_OK(api().cuMemPoolDestroy(pool));
}

TEST_F(PoolTest, WithoutAThresholdASynchronizationReleasesFreedMemory) {
  CUmemoryPool pool = nullptr;
  ASSERT_OK(api().cuDeviceGetDefaultMemPool(&pool, 0));
  cuuint64_t keep = 0;
  ASSERT_OK(api().cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  const std::size_t before = free_memory();
  CUdeviceptr memory = 0;
  ASSERT_OK(api().cuMemAllocAsync(&memory, 64 * kMiB, stream_));
  ASSERT_OK(api().cuStreamSynchronize(stream_));
  EXPECT_LE(free_memory() + 64 * kMiB, before);
  ASSERT_OK(api().cuMemFreeAsync(memory, stream_));
  ASSERT_OK(api().cuStreamSynchronize(stream_));
  EXPECT_TRUE(comes_back(before));
}

TEST_F(PoolTest, TheMemoryPoolOfADeviceCanBeSelected) {
  CUmemoryPool standard = nullptr;
  CUmemoryPool chosen = nullptr;
  const CUmemoryPool pool = make_pool();
  ASSERT_OK(api().cuDeviceGetDefaultMemPool(&standard, 0));
  ASSERT_OK(api().cuDeviceSetMemPool(0, pool));
  ASSERT_OK(api().cuDeviceGetMemPool(&chosen, 0));
  EXPECT_EQ(pool, chosen);
  CUdeviceptr memory = 0;
  ASSERT_OK(api().cuMemAllocAsync(&memory, kMiB, stream_));
  EXPECT_GE(value(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), kMiB);
  ASSERT_OK(api().cuMemFreeAsync(memory, stream_));
  ASSERT_OK(api().cuStreamSynchronize(stream_));
  EXPECT_OK(api().cuMemPoolDestroy(pool));
  ASSERT_OK(api().cuDeviceGetMemPool(&chosen, 0));
  EXPECT_EQ(standard, chosen);
}

}  // namespace
}  // namespace conformance
