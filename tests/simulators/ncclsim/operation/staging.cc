// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/ncclsim/operation/staging.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <list>
#include <map>
#include <mutex>
#include <new>

#include "tests/simulators/ncclsim/driver/driver.h"

namespace ncclsim {
namespace {

constexpr std::size_t kWordsBytes = 4096;  // data begins at a page boundary
constexpr std::size_t kMinData = std::size_t{64} << 10;

static_assert(offsetof(StagingWords, ready) == kWordReady &&
              offsetof(StagingWords, finished) == kWordFinished &&
              offsetof(StagingWords, copied) == kWordCopied);

struct Pool {
  int communicators = 0;
  std::list<Block*> idle;  // idle blocks, or blocks that become idle when their stream has passed them
};

std::mutex& pools_lock() {
  static auto* lock = new std::mutex;
  return *lock;
}

std::map<CUcontext, Pool>& pools() {
  static auto* all = new std::map<CUcontext, Pool>;
  return *all;
}

bool passed(const Block& block) {
  return !block.in_stream || block.words().copied.load(std::memory_order_acquire) == block.use;
}

Block* take_idle(Pool* pool, std::size_t data_bytes) {
  const auto found = std::find_if(pool->idle.begin(), pool->idle.end(), [data_bytes](const Block* block) {
    return block->bytes == data_bytes && passed(*block);
  });
  if (found == pool->idle.end()) return nullptr;
  Block* block = *found;
  pool->idle.erase(found);
  return block;
}

ncclResult_t make_block(std::size_t data_bytes, Block** out) {
  const RelaxedCapture relaxed;
  void* host = nullptr;
  NCCLSIM_CUDA(cuMemHostAlloc, &host, kWordsBytes + data_bytes,
               CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE);
  auto* block = new Block;
  block->host = static_cast<unsigned char*>(host);
  block->bytes = data_bytes;
  new (host) StagingWords{{0}, {0}, {0}};
  *out = block;
  const ncclResult_t result = cuda_result(driver().cuMemHostGetDevicePointer_v2(&block->device, host, 0),
                                          "cuMemHostGetDevicePointer");
  if (result == ncclSuccess) return result;
  driver().cuMemFreeHost(host);
  delete block;
  return result;
}

void give_back(CUcontext context, Block* block) {
  std::lock_guard<std::mutex> lock(pools_lock());
  pools()[context].idle.push_back(block);
}

}  // namespace

unsigned char* Block::data() const {
  return host + kWordsBytes;
}

ncclResult_t acquire_block(CUcontext context, std::size_t bytes, std::shared_ptr<Block>* out) {
  const std::size_t data_bytes = std::max(kMinData, std::bit_ceil(bytes));
  Block* block = nullptr;
  {
    std::lock_guard<std::mutex> lock(pools_lock());
    block = take_idle(&pools()[context], data_bytes);
  }
  if (block == nullptr) NCCLSIM_TRY(make_block(data_bytes, &block));
  block->use++;
  block->in_stream = false;
  *out = std::shared_ptr<Block>(block, [context](Block* done) { give_back(context, done); });
  return ncclSuccess;
}

void use_staging(CUcontext context) {
  std::lock_guard<std::mutex> lock(pools_lock());
  pools()[context].communicators++;
}

void leave_staging(CUcontext context) {
  std::list<Block*> unused;
  {
    std::lock_guard<std::mutex> lock(pools_lock());
    Pool& pool = pools()[context];
    if (--pool.communicators > 0) return;
    // Freeing waits for all streams. A stream that has not reached its block may wait for another event, so
    // no block is freed yet.
    if (!std::all_of(pool.idle.begin(), pool.idle.end(), [](const Block* block) { return passed(*block); }))
      return;
    unused.swap(pool.idle);
  }
  for (const Block* block : unused) {
    driver().cuMemFreeHost(block->host);
    delete block;
  }
}

}  // namespace ncclsim
