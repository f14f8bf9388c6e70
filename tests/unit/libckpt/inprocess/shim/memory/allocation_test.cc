// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <random>
#include <thread>

#include "libckpt/inprocess/shim/core/job_state.h"
#include "libckpt/inprocess/shim/memory/state.h"
#include "tests/unit/libckpt/inprocess/shim/memory/memory_fixture.h"

namespace ckpt::shim {
namespace {

using AllocationTest = ShimMemoryTest;

TEST_F(AllocationTest, SmallAllocationsShareASlabAndKeepTheirBytes) {
  std::vector<CUdeviceptr> blocks;
  for (unsigned i = 0; i < 300; ++i) {
    blocks.push_back(allocate(100 + 40 * i));
    ASSERT_EQ(0U, blocks.back() % 512);
    fill(blocks.back(), 100 + 40 * i, i);
  }
  EXPECT_LE(shim_memory().regions().size(), 2U);
  for (unsigned i = 0; i < blocks.size(); ++i) {
    EXPECT_TRUE(holds(blocks[i], 100 + 40 * i, i));
    EXPECT_OK(hook::cuMemFree_v2(blocks[i]));
  }
  EXPECT_LE(shim_memory().regions().size(), 1U);
}

TEST_F(AllocationTest, InvalidFreesAreRefusedAsByTheDriver) {
  const CUdeviceptr large = allocate(3 * kMiB);
  const CUdeviceptr small = allocate(1000);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, hook::cuMemFree_v2(large + 512));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, hook::cuMemFree_v2(small + 512));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, hook::cuMemFree_v2(small + 4096));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, hook::cuMemFree_v2(0x1234));
  EXPECT_OK(hook::cuMemFree_v2(0));
  EXPECT_OK(hook::cuMemFree_v2(large));
  EXPECT_OK(hook::cuMemFree_v2(small));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, hook::cuMemFree_v2(large));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, hook::cuMemFree_v2(small));
  CUdeviceptr none = 0;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, hook::cuMemAlloc_v2(&none, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, hook::cuMemAlloc_v2(nullptr, 1));
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, hook::cuMemAlloc_v2(&none, ~std::size_t{0}));
}

TEST_F(AllocationTest, PointerQueriesMatchTheDriver) {
  const CUdeviceptr pair[2] = {allocate(5000), allocate(3 * kMiB + 100)};
  CUdeviceptr plain[2] = {};
  ASSERT_OK(real().cuMemAlloc_v2(&plain[0], 5000));
  ASSERT_OK(real().cuMemAlloc_v2(&plain[1], 3 * kMiB + 100));
  for (int i = 0; i < 2; ++i) {
    CUdeviceptr base = 0;
    CUdeviceptr plain_base = 0;
    std::size_t bytes = 0;
    std::size_t plain_bytes = 0;
    ASSERT_OK(hook::cuMemGetAddressRange_v2(&base, &bytes, pair[i] + 700));
    ASSERT_OK(real().cuMemGetAddressRange_v2(&plain_base, &plain_bytes, plain[i] + 700));
    EXPECT_EQ(pair[i], base);
    EXPECT_EQ(plain_bytes, bytes);
    for (const CUpointer_attribute attribute :
         {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
          CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_MAPPED, CU_POINTER_ATTRIBUTE_IS_MANAGED,
          CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
          CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE}) {
      std::uint64_t ours = 0;
      std::uint64_t theirs = 0;
      EXPECT_EQ(real().cuPointerGetAttribute(&theirs, attribute, plain[i] + 8),
                hook::cuPointerGetAttribute(&ours, attribute, pair[i] + 8));
      EXPECT_EQ(theirs, ours) << attribute;
    }
    CUdeviceptr start = 0;
    std::size_t size = 0;
    CUpointer_attribute both[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void* data[] = {&start, &size};
    EXPECT_OK(hook::cuPointerGetAttributes(2, both, data, pair[i] + 8));
    EXPECT_EQ(pair[i], start);
    EXPECT_EQ(plain_bytes, size);
  }
  unsigned long long number[2] = {};
  for (int i = 0; i < 2; ++i) {
    EXPECT_OK(hook::cuPointerGetAttribute(&number[i], CU_POINTER_ATTRIBUTE_BUFFER_ID, pair[i]));
    EXPECT_OK(real().cuMemFree_v2(plain[i]));
  }
  EXPECT_NE(number[0], number[1]);
  // A free piece of a slab does not count as memory.
  unsigned type = 0;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            hook::cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pair[0] + 100 * 1024));
  CUdeviceptr base = 0;
  EXPECT_EQ(CUDA_ERROR_NOT_FOUND, hook::cuMemGetAddressRange_v2(&base, nullptr, pair[0] + 100 * 1024));
  for (const CUdeviceptr pointer : pair) EXPECT_OK(hook::cuMemFree_v2(pointer));
}

TEST_F(AllocationTest, MemoryIsFreedEvenAfterAFailedAllocation) {
  const std::size_t before = free_memory();
  const CUdeviceptr pointer = allocate(64 * kMiB);
  EXPECT_EQ(before - 64 * kMiB, free_memory());
  CUdeviceptr none = 0;
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, hook::cuMemAlloc_v2(&none, before));
  EXPECT_OK(hook::cuMemFree_v2(pointer));
  EXPECT_EQ(before, free_memory());
  const CUdeviceptr small = allocate(1);
  EXPECT_OK(hook::cuMemFree_v2(small));
  EXPECT_EQ(before, free_memory());
}

TEST_F(AllocationTest, AKeptEmptySlabIsReleasedForALargeAllocation) {
  EXPECT_OK(hook::cuMemFree_v2(allocate(1)));
  ASSERT_EQ(1U, shim_memory().regions().size());
  const CUdeviceptr all = allocate(free_memory());
  EXPECT_EQ(1U, shim_memory().regions().size());
  EXPECT_OK(hook::cuMemFree_v2(all));
}

TEST_F(AllocationTest, PitchIsAMultipleOf512) {
  CUdeviceptr pointer = 0;
  std::size_t pitch = 0;
  ASSERT_OK(hook::cuMemAllocPitch_v2(&pointer, &pitch, 1000, 3000, 4));
  EXPECT_EQ(1024U, pitch);
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  EXPECT_OK(hook::cuMemGetAddressRange_v2(&base, &bytes, pointer));
  EXPECT_EQ(1024U * 3000, bytes);
  EXPECT_OK(hook::cuMemFree_v2(pointer));
}

TEST_F(AllocationTest, MemoryOfAContextIsFreedWithTheContext) {
  const std::size_t before = free_memory();
  CUcontext other = nullptr;
  ASSERT_OK(real().cuCtxCreate_v2(&other, 0, 0));
  const CUdeviceptr large = allocate(64 * kMiB);
  const CUdeviceptr small = allocate(64);
  ASSERT_OK(hook::cuCtxDestroy_v2(other));
  ASSERT_OK(real().cuCtxSetCurrent(context_));
  EXPECT_TRUE(comes_back(before));
  EXPECT_TRUE(shim_memory().regions().empty());
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, hook::cuMemFree_v2(large));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, hook::cuMemFree_v2(small));
}

TEST_F(AllocationTest, CallsWithoutAContextReturnTheDriverError) {
  ASSERT_OK(real().cuCtxSetCurrent(nullptr));
  CUdeviceptr pointer = 0;
  EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, hook::cuMemAlloc_v2(&pointer, 100));
  EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, hook::cuMemFree_v2(0x1000));
}

TEST_F(AllocationTest, QuotaIsReportedAsTheDeviceMemory) {
  MemoryState state(real());
  EXPECT_EQ(0U, state.quota.limit());
  ::setenv("GPUMIGRATE_GPU_MEMORY", "8388608", 1);
  EXPECT_EQ(8 * kMiB, Quota::limit_from_environment());
  ::setenv("GPUMIGRATE_GPU_MEMORY", "8MiB", 1);
  EXPECT_EQ(0U, Quota::limit_from_environment());
  ::unsetenv("GPUMIGRATE_GPU_MEMORY");
  Quota quota(8 * kMiB);
  EXPECT_TRUE(quota.reserve(0, 6 * kMiB));
  EXPECT_FALSE(quota.reserve(0, 4 * kMiB));
  EXPECT_TRUE(quota.reserve(1, 4 * kMiB));
  EXPECT_FALSE(quota.reserve(0, ~std::uint64_t{0}));
  quota.give(0, 6 * kMiB);
  EXPECT_TRUE(quota.reserve(0, 8 * kMiB));
}

// Runs as in ctest's shim_quota_test: GPUMIGRATE_GPU_MEMORY=33554432 (32 MiB).
TEST_F(AllocationTest, BeyondTheQuotaAllocationsFail) {
  if (Quota::limit_from_environment() == 0) GTEST_SKIP() << "no quota";
  std::size_t free_bytes = 0;
  std::size_t total = 0;
  ASSERT_OK(hook::cuMemGetInfo_v2(&free_bytes, &total));
  EXPECT_EQ(32 * kMiB, total);
  EXPECT_EQ(32 * kMiB, free_bytes);
  const CUdeviceptr large = allocate(28 * kMiB);
  const CUdeviceptr small = allocate(100);
  ASSERT_OK(hook::cuMemGetInfo_v2(&free_bytes, &total));
  EXPECT_EQ(2 * kMiB, free_bytes);
  CUdeviceptr more = 0;
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, hook::cuMemAlloc_v2(&more, 4 * kMiB));
  CUmemAllocationProp property{};
  property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  property.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, hook::cuMemCreate(&handle, 4 * kMiB, &property, 0));
  EXPECT_OK(hook::cuMemFree_v2(small));
  EXPECT_OK(hook::cuMemCreate(&handle, 4 * kMiB, &property, 0));
  EXPECT_OK(hook::cuMemRelease(handle));
  EXPECT_OK(hook::cuMemFree_v2(large));
  const CUdeviceptr all = allocate(32 * kMiB);
  EXPECT_OK(hook::cuMemFree_v2(all));
}

// Allocations and frees do not break a capture in progress. Memory that is allocated within the capture
// belongs to the driver.
TEST_F(AllocationTest, CapturesContinueDuringAllocations) {
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  ASSERT_OK(real().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  const CUdeviceptr before = allocate(3 * kMiB);
  ASSERT_OK(hook::cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  ASSERT_OK(real().cuMemsetD8Async(before, 1, 100, stream));
  const CUdeviceptr during = allocate(1000);
  EXPECT_OK(hook::cuMemFree_v2(during));
  const std::size_t regions = shim_memory().regions().size();
  CUdeviceptr inside = 0;
  EXPECT_FALSE(reason().has_value());
  ASSERT_OK(hook::cuMemAllocAsync(&inside, 4096, stream));
  EXPECT_EQ(regions, shim_memory().regions().size());
  EXPECT_STREQ("cuMemAllocAsync (into a graph or a pool that is shared)", reason().value_or(""));
  ASSERT_OK(hook::cuMemFreeAsync(inside, stream));
  ASSERT_OK(hook::cuStreamEndCapture(stream, &graph));
  EXPECT_NE(nullptr, graph);
  EXPECT_OK(real().cuGraphDestroy(graph));
  // In the strict mode both the driver and the shim forbid the allocation.
  ASSERT_OK(hook::cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CUdeviceptr refused = 0;
  EXPECT_EQ(real().cuMemAlloc_v2(&refused, 1), hook::cuMemAlloc_v2(&refused, 1));
  EXPECT_NE(CUDA_SUCCESS, hook::cuStreamEndCapture(stream, &graph));
  EXPECT_OK(hook::cuMemFree_v2(before));
  EXPECT_OK(real().cuStreamDestroy_v2(stream));
}

// A free waits for the device, and must not overlap with the start of another thread's capture.
TEST_F(AllocationTest, CapturesStartDuringConcurrentFrees) {
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&] {
      const GateScope inside("test");
      ASSERT_OK(real().cuCtxSetCurrent(context_));
      CUstream stream = nullptr;
      ASSERT_OK(real().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
      while (!over.load()) {
        const CUdeviceptr pointer = allocate(1000);
        ASSERT_OK(real().cuMemsetD8Async(pointer, 1, 1000, stream));
        ASSERT_OK(hook::cuMemFree_v2(pointer));
      }
      EXPECT_OK(real().cuStreamDestroy_v2(stream));
    });
  }
  CUstream stream = nullptr;
  ASSERT_OK(real().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (unsigned turn = 0; turn < 100000 && !HasFailure(); ++turn) {
    CUgraph graph = nullptr;
    ASSERT_OK(hook::cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    EXPECT_OK(hook::cuStreamEndCapture(stream, &graph));
    if (graph != nullptr) {
      EXPECT_OK(real().cuGraphDestroy(graph));
    }
  }
  over.store(true);
  for (std::thread& thread : threads) thread.join();
  EXPECT_OK(real().cuStreamDestroy_v2(stream));
}

TEST_F(AllocationTest, ThreadsNeverShareABlock) {
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < 4; ++thread) {
    threads.emplace_back([this, thread] {
      const GateScope inside("test");
      ASSERT_OK(real().cuCtxSetCurrent(context_));
      std::mt19937 random(thread);
      std::map<CUdeviceptr, std::pair<std::size_t, unsigned>> live;
      for (unsigned step = 0; step < 150; ++step) {
        if (live.size() < 20 && random() % 3 != 0) {
          const std::size_t bytes = 4 * (1 + random() % (1U << (random() % 18)));
          const CUdeviceptr pointer = allocate(bytes);
          fill(pointer, bytes, thread * 1000 + step);
          live[pointer] = {bytes, thread * 1000 + step};
        } else if (!live.empty()) {
          const auto found = std::next(live.begin(), static_cast<long>(random() % live.size()));
          EXPECT_TRUE(holds(found->first, found->second.first, found->second.second));
          EXPECT_OK(hook::cuMemFree_v2(found->first));
          live.erase(found);
        }
      }
      for (const auto& [pointer, block] : live) {
        EXPECT_TRUE(holds(pointer, block.first, block.second));
        EXPECT_OK(hook::cuMemFree_v2(pointer));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(shim_memory().regions().size(), 1U);
}

TEST_F(AllocationTest, PeersAccessCurrentAndFutureAllocations) {
  CUcontext second = nullptr;
  ASSERT_OK(hook::cuDevicePrimaryCtxRetain(&second, 1));
  const CUdeviceptr before = allocate(2 * kMiB);
  ASSERT_OK(real().cuCtxSetCurrent(second));
  ASSERT_OK(hook::cuCtxEnablePeerAccess(context_, 0));
  EXPECT_EQ(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, hook::cuCtxEnablePeerAccess(context_, 0));
  ASSERT_OK(real().cuCtxSetCurrent(context_));
  const CUdeviceptr after = allocate(2 * kMiB);
  const CUdeviceptr small = allocate(100);
  const CUmemLocation peer{CU_MEM_LOCATION_TYPE_DEVICE, 1};
  for (const CUdeviceptr pointer : {before, after, small & ~(2 * kMiB - 1)}) {
    unsigned long long flags = 0;
    EXPECT_OK(real().cuMemGetAccess(&flags, &peer, pointer));
    EXPECT_EQ(static_cast<unsigned long long>(CU_MEM_ACCESS_FLAGS_PROT_READWRITE), flags);
  }
  ASSERT_OK(real().cuCtxSetCurrent(second));
  EXPECT_OK(hook::cuCtxDisablePeerAccess(context_));
  unsigned long long flags = 1;
  EXPECT_OK(real().cuMemGetAccess(&flags, &peer, before));
  EXPECT_EQ(0U, flags);
  ASSERT_OK(real().cuCtxSetCurrent(context_));
  EXPECT_OK(hook::cuDevicePrimaryCtxRelease_v2(1));
}

}  // namespace
}  // namespace ckpt::shim
