// SPDX-License-Identifier: Apache-2.0
#include "tests/programs/torchlike/allocator.h"

#include <utility>

#include "tools/examples/common/gpu.h"

namespace ckpt::examples {
namespace {

constexpr std::uint64_t kRounding = 512;

CUevent event_on(CUstream stream) {
  CUevent event = nullptr;
  check(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  check(cuEventRecord(event, stream), "cuEventRecord");
  return event;
}

// A scope in which memory may be allocated during this thread's capture.
class RelaxedMode {
 public:
  RelaxedMode() { exchange(); }
  ~RelaxedMode() { exchange(); }
  RelaxedMode(const RelaxedMode&) = delete;
  RelaxedMode& operator=(const RelaxedMode&) = delete;

 private:
  void exchange() { check(cuThreadExchangeStreamCaptureMode(&mode_), "cuThreadExchangeStreamCaptureMode"); }
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

std::unique_ptr<Segments> segments_of(Backing backing, std::uint64_t unit, CUdevice device) {
  if (backing == Backing::kOwn) return std::make_unique<OwnSegments>(unit);
  return std::make_unique<ExpandableSegments>(unit, device);
}

}  // namespace

CachingAllocator::CachingAllocator(Backing backing, CUdevice device) {
  small_.segments = segments_of(backing, kSmallSegment, device);
  large_.segments = segments_of(backing, kLargeSegment, device);
}

CachingAllocator::~CachingAllocator() {
  for (Arena* arena : {&small_, &large_}) {
    for (auto& [at, block] : arena->blocks) {
      for (const CUevent event : block.waits_for) cuEventDestroy(event);
    }
  }
}

CUdeviceptr CachingAllocator::allocate(std::uint64_t bytes, CUstream stream) {
  bytes = (bytes + kRounding - 1) / kRounding * kRounding;
  if (!capturing_) look_at_events();
  Arena& arena = arena_of(bytes);
  auto block = best_fit(arena, bytes, stream);
  if (block == arena.blocks.end()) block = add_memory(arena, bytes, stream);
  split(arena, block, bytes);
  block->second.is_taken = true;
  return block->first;
}

CachingAllocator::Blocks::iterator CachingAllocator::best_fit(Arena& arena, std::uint64_t bytes,
                                                              CUstream stream) {
  auto best = arena.blocks.end();
  for (auto at = arena.blocks.begin(); at != arena.blocks.end(); ++at) {
    const Block& block = at->second;
    if (block.is_taken || block.stream != stream || block.is_graphs != capturing_ || block.bytes < bytes)
      continue;
    if (best == arena.blocks.end() || block.bytes < best->second.bytes) best = at;
  }
  return best;
}

CachingAllocator::Blocks::iterator CachingAllocator::add_memory(Arena& arena, std::uint64_t bytes,
                                                                CUstream stream) {
  const RelaxedMode relaxed;
  const Range range = arena.segments->more(bytes);
  return arena.blocks.emplace(range.at, Block{range.bytes, stream, capturing_}).first;
}

// Splits a block; the remainder stays free.
void CachingAllocator::split(Arena& arena, Blocks::iterator block, std::uint64_t bytes) {
  if (block->second.bytes == bytes) return;
  Block rest{block->second.bytes - bytes, block->second.stream, block->second.is_graphs};
  rest.is_taken = false;
  block->second.bytes = bytes;
  arena.blocks.emplace(block->first + bytes, std::move(rest));
}

void CachingAllocator::free(CUdeviceptr at) {
  Arena& arena = arena_at(at);
  const auto block = arena.blocks.find(at);
  for (const CUstream user : std::exchange(block->second.users, {}))
    block->second.waits_for.push_back(event_on(user));
  if (block->second.waits_for.empty()) make_free(arena, block);
}

void CachingAllocator::look_at_events() {
  for (Arena* arena : {&small_, &large_}) {
    for (auto at = arena->blocks.begin(); at != arena->blocks.end();) {
      const auto block = at++;
      std::vector<CUevent>& events = block->second.waits_for;
      if (events.empty()) continue;
      while (!events.empty() && cuEventQuery(events.back()) == CUDA_SUCCESS) {
        check(cuEventDestroy(events.back()), "cuEventDestroy");
        events.pop_back();
      }
      if (!events.empty()) continue;
      make_free(*arena, block);
      at = arena->blocks.begin();  // the block may have been joined with its neighbors
    }
  }
}

bool CachingAllocator::can_join(const Arena& arena, Blocks::iterator first, Blocks::iterator second) {
  return !first->second.is_taken && !second->second.is_taken &&
         first->second.stream == second->second.stream &&
         first->second.is_graphs == second->second.is_graphs &&
         first->first + first->second.bytes == second->first && arena.segments->joins(second->first);
}

void CachingAllocator::make_free(Arena& arena, Blocks::iterator block) {
  block->second.is_taken = false;
  const auto next = std::next(block);
  if (next != arena.blocks.end() && can_join(arena, block, next)) {
    block->second.bytes += next->second.bytes;
    arena.blocks.erase(next);
  }
  if (block == arena.blocks.begin()) return;
  const auto before = std::prev(block);
  if (!can_join(arena, before, block)) return;
  before->second.bytes += block->second.bytes;
  arena.blocks.erase(block);
}

void CachingAllocator::empty_cache() {
  look_at_events();
  empty(small_);
  empty(large_);
}

void CachingAllocator::empty(Arena& arena) {
  for (auto at = arena.blocks.begin(); at != arena.blocks.end();) {
    const auto block = at++;
    if (block->second.is_taken || block->second.is_graphs) continue;
    const Range whole{block->first, block->second.bytes};
    const Range range = arena.segments->releasable(whole);
    if (range.bytes == 0) continue;
    // Unmapping does not wait for any work, and a free block may still be in use on its own stream.
    check(cuStreamSynchronize(block->second.stream), "cuStreamSynchronize");
    arena.segments->give_back(range);
    Block rest{whole.end() - range.end(), block->second.stream, false};
    rest.is_taken = false;
    block->second.bytes = range.at - whole.at;
    if (block->second.bytes == 0) arena.blocks.erase(block);
    if (rest.bytes != 0) arena.blocks.emplace(range.end(), std::move(rest));
  }
}

PoolAllocator::PoolAllocator(CUdevice device) {
  CUmemoryPool pool = nullptr;
  cuuint64_t keep = UINT64_MAX;
  check(cuDeviceGetDefaultMemPool(&pool, device), "cuDeviceGetDefaultMemPool");
  check(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep), "cuMemPoolSetAttribute");
}

CUdeviceptr PoolAllocator::allocate(std::uint64_t bytes, CUstream stream) {
  CUdeviceptr at = 0;
  check(cuMemAllocAsync(&at, bytes, stream), "cuMemAllocAsync");
  streams_[at] = stream;
  return at;
}

// Delays the release of the block until the other stream has finished its work on it. The block's own stream
// releases the block, and waits for an event of the other stream before that.
void PoolAllocator::used_by(CUdeviceptr at, CUstream stream) {
  const CUevent event = event_on(stream);
  check(cuStreamWaitEvent(streams_.at(at), event, 0), "cuStreamWaitEvent");
  check(cuEventDestroy(event), "cuEventDestroy");
}

void PoolAllocator::free(CUdeviceptr at) {
  check(cuMemFreeAsync(at, streams_.extract(at).mapped()), "cuMemFreeAsync");
}

}  // namespace ckpt::examples
