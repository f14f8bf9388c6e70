// SPDX-License-Identifier: Apache-2.0
// Tests allocation from pools: memory is reused in the order of the streams. The test registers the pools
// itself, as if the driver had created them.
#include <future>
#include <mutex>
#include <utility>

#include "libckpt/inprocess/shim/memory/blocks.h"
#include "libckpt/inprocess/shim/memory/pools.h"
#include "tests/unit/libckpt/inprocess/shim/memory/memory_fixture.h"

namespace ckpt::shim {
namespace {

const CUmemoryPool kHandle = reinterpret_cast<CUmemoryPool>(std::uintptr_t{0x77});

class PoolTest : public ShimMemoryTest {
 protected:
  void SetUp() override {
    ShimMemoryTest::SetUp();
    if (HasFatalFailure()) return;
    state_ = &shim_memory().state();
    ASSERT_TRUE(state_->facts_for(0).movable);
    {
      const std::unique_lock lock(state_->mutex);
      pool_ = &add_pool(*state_, kHandle, 0, 0);
    }
    for (int i = 0; i < 2; ++i) {
      ASSERT_OK(real().cuStreamCreate(&streams_[i], CU_STREAM_NON_BLOCKING));
      ASSERT_OK(place_of(real(), streams_[i], false, &places_[i]));
      places_[i].number = static_cast<std::uint64_t>(i) + 1;
    }
  }
  void TearDown() override {
    end_pool(*state_, kHandle);
    for (CUstream stream : streams_) EXPECT_OK(real().cuStreamSynchronize(stream));
    memory_synchronized();
    for (CUstream stream : streams_) EXPECT_OK(real().cuStreamDestroy_v2(stream));
    ShimMemoryTest::TearDown();
  }

  CUdeviceptr take(std::size_t bytes, int stream) {
    CUdeviceptr pointer = 0;
    EXPECT_OK(allocate_on_stream(*state_, *pool_, bytes, places_[stream], &pointer));
    return pointer;
  }
  CUresult give(CUdeviceptr pointer, int stream) {
    return free_on_stream(*state_, pointer, places_[stream]).value_or(CUDA_ERROR_UNKNOWN);
  }
  [[nodiscard]] std::uint64_t reserved() const {
    const std::shared_lock lock(state_->mutex);
    return state_->regions.block_bytes(pool_);
  }
  // A gate that blocks a stream until the gate is opened or destroyed.
  class Hold {
   public:
    explicit Hold(CUstream stream) : stream_(stream) {
      const auto wait = [](void* data) { static_cast<std::promise<void>*>(data)->get_future().wait(); };
      EXPECT_OK(real().cuLaunchHostFunc(stream, wait, &promise_));
    }
    ~Hold() {
      open();
      EXPECT_OK(real().cuStreamSynchronize(stream_));  // the driver's thread uses the promise until this call
                                                       // returns
    }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    void open() {
      if (!std::exchange(opened_, true)) promise_.set_value();
    }

   private:
    CUstream stream_;
    std::promise<void> promise_;
    bool opened_ = false;
  };

  MemoryState* state_ = nullptr;
  Pool* pool_ = nullptr;
  CUstream streams_[2] = {};
  StreamPlace places_[2];
};

TEST_F(PoolTest, MemoryFreedOnAStreamIsReusedImmediatelyOnTheSameStream) {
  Hold hold(streams_[0]);
  for (const std::size_t bytes : {std::size_t{1000}, 3 * kMiB}) {
    const CUdeviceptr first = take(bytes, 0);
    EXPECT_OK(give(first, 0));
    const CUdeviceptr other = take(bytes, 1);
    EXPECT_NE(first, other);
    EXPECT_EQ(first, take(bytes, 0));
    EXPECT_OK(give(first, 0));
    EXPECT_OK(give(other, 1));
  }
  hold.open();
}

TEST_F(PoolTest, OtherStreamsReuseMemoryAfterTheWorkBeforeTheFreeEnds) {
  Hold hold(streams_[0]);
  const CUdeviceptr first = take(3 * kMiB, 0);
  EXPECT_OK(give(first, 0));
  const CUdeviceptr other = take(3 * kMiB, 1);
  EXPECT_NE(first, other);
  hold.open();
  ASSERT_OK(real().cuStreamSynchronize(streams_[0]));
  EXPECT_EQ(first, take(3 * kMiB, 1));
  EXPECT_OK(give(first, 1));
  EXPECT_OK(give(other, 1));
}

TEST_F(PoolTest, MemoryAboveTheThresholdIsReleasedAtASynchronization) {
  pool_->threshold = 4 * kMiB;
  const CUdeviceptr pair[2] = {take(4 * kMiB, 0), take(8 * kMiB, 0)};
  EXPECT_EQ(12 * kMiB, reserved());
  EXPECT_EQ(12 * kMiB, pool_->used);
  for (const CUdeviceptr pointer : pair) EXPECT_OK(give(pointer, 0));
  EXPECT_EQ(0U, pool_->used);
  EXPECT_EQ(12 * kMiB, reserved());
  ASSERT_OK(real().cuStreamSynchronize(streams_[0]));
  memory_synchronized();
  EXPECT_EQ(4 * kMiB, reserved());
  EXPECT_EQ(12 * kMiB, pool_->used_high);
  EXPECT_EQ(12 * kMiB, pool_->reserved_high);
  EXPECT_EQ(pair[0], take(4 * kMiB, 1));
  shim_memory().trim();
  EXPECT_EQ(4 * kMiB, reserved());
  EXPECT_OK(give(pair[0], 1));
  ASSERT_OK(real().cuStreamSynchronize(streams_[1]));
  shim_memory().trim();
  EXPECT_EQ(0U, reserved());
}

TEST_F(PoolTest, InvalidFreesAreRefused) {
  const CUdeviceptr pointer = take(100, 0);
  const CUdeviceptr plain = allocate(100);
  EXPECT_FALSE(free_on_stream(*state_, plain, places_[0]).has_value());
  EXPECT_FALSE(free_on_stream(*state_, pointer + 512, places_[0]).has_value());
  EXPECT_OK(give(pointer, 0));
  EXPECT_FALSE(free_on_stream(*state_, pointer, places_[0]).has_value());
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, hook::cuMemFree_v2(pointer));
  EXPECT_OK(hook::cuMemFree_v2(plain));
}

TEST_F(PoolTest, PlainFreeAcceptsPoolMemory) {
  const CUdeviceptr pointer = take(3 * kMiB, 0);
  CUmemoryPool handle = nullptr;
  EXPECT_OK(hook::cuPointerGetAttribute(&handle, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pointer));
  EXPECT_EQ(kHandle, handle);
  EXPECT_OK(hook::cuMemFree_v2(pointer));
  EXPECT_EQ(0U, pool_->used);
  EXPECT_EQ(0U, reserved());
}

TEST_F(PoolTest, AllocationWaitsForAFreeOnAnotherStreamInsteadOfFailing) {
  Hold hold(streams_[0]);
  const std::size_t all = free_memory() / (2 * kMiB) * (2 * kMiB);
  const CUdeviceptr pointer = take(all, 0);
  EXPECT_OK(give(pointer, 0));
  EXPECT_EQ(pointer, take(all, 1));
  ASSERT_OK(real().cuMemsetD8Async(pointer, 1, 16, streams_[1]));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, real().cuStreamQuery(streams_[1]));
  hold.open();
  ASSERT_OK(real().cuStreamSynchronize(streams_[1]));
  EXPECT_OK(give(pointer, 1));
}

TEST_F(PoolTest, ALimitedPoolRefusesAllocationsAboveItsLimit) {
  pool_->limit = 4 * kMiB;
  const CUdeviceptr pointer = take(4 * kMiB, 0);
  CUdeviceptr more = 0;
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, allocate_on_stream(*state_, *pool_, 2 * kMiB, places_[0], &more));
  EXPECT_OK(give(pointer, 0));
  EXPECT_EQ(pointer, take(4 * kMiB, 0));
  EXPECT_OK(give(pointer, 0));
}

TEST_F(PoolTest, MemoryOfADestroyedPoolIsKeptUntilTheFree) {
  const CUdeviceptr pointer = take(3 * kMiB, 0);
  end_pool(*state_, kHandle);
  fill(pointer, 3 * kMiB, 5);
  EXPECT_TRUE(holds(pointer, 3 * kMiB, 5));
  EXPECT_OK(give(pointer, 0));
  ASSERT_OK(real().cuStreamSynchronize(streams_[0]));
  memory_synchronized();
  EXPECT_TRUE(shim_memory().regions().empty());
}

TEST_F(PoolTest, AMoveIncludesPoolMemory) {
  const CUdeviceptr large = take(3 * kMiB, 0);
  const CUdeviceptr small = take(3000, 0);
  fill(large, 3 * kMiB, 8);
  fill(small, 3000, 9);
  auto bank = export_all();
  ASSERT_TRUE(shim_memory().release_all().has_value());
  for (const auto& [id, fd] : bank) ASSERT_TRUE(shim_memory().map_region(id, fd.get()).has_value());
  EXPECT_TRUE(holds(large, 3 * kMiB, 8));
  EXPECT_TRUE(holds(small, 3000, 9));
  EXPECT_OK(give(large, 0));
  EXPECT_OK(give(small, 0));
}

}  // namespace
}  // namespace ckpt::shim
