// SPDX-License-Identifier: Apache-2.0
// Stream-ordered allocations. Memory that is freed on a stream is reused in that stream's order. Other
// streams get the memory once the work before the free has ended. Pools retain memory as the driver's pools
// do: until a synchronization, and beyond it up to the release threshold.
// Threads: any. Errors: the driver's codes. Units: bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "libckpt/inprocess/shim/memory/state.h"

namespace ckpt::shim {

// Returns freed memory to the pool if the free's stream has reached the free. Call this function and the next
// ones with the mutex held, and drop the regions in `gone` after releasing it.
void reclaim_freed(MemoryState& state, Pool& pool, std::vector<Region>& gone);
// Releases unused memory until the pool has no more than `limit` or nothing more can be released.
void trim_pool(MemoryState& state, Pool& pool, std::uint64_t limit, std::vector<Region>& gone);
// Ends all waits for the streams of a context that was destroyed.
void end_waits(MemoryState& state, CUcontext context);

// Adds a pool of this device, whose handle the driver has made.
Pool& add_pool(MemoryState& state, CUmemoryPool handle, int device, std::uint64_t limit);
// Ends a pool. Memory that the program has allocated from it stays until the program frees it.
void end_pool(MemoryState& state, CUmemoryPool handle);
// Frees all memory of the device's pools, because the device has no primary context any more.
void free_pools(MemoryState& state, int device);

struct StreamPlace {
  CUstream stream = nullptr;
  CUcontext context = nullptr;
  int device = 0;
  std::uint64_t number = 0;  // the driver's number for the stream; 0 if the number is not known, or if
                             // threads do not share the stream
};
// Returns the place of a stream. `per_thread` selects the meaning of a null stream (the _ptsz functions).
CUresult place_of(const RealDriver& driver, CUstream stream, bool per_thread, StreamPlace* out);

CUresult allocate_on_stream(MemoryState& state, Pool& pool, std::uint64_t bytes, const StreamPlace& place,
                            CUdeviceptr* out);
// Frees the block in stream order. Returns nullopt if it was not allocated from a pool of the shim.
std::optional<CUresult> free_on_stream(MemoryState& state, CUdeviceptr address, const StreamPlace& place);

// Notes that the program has synchronized with a stream, an event or a context: pools release memory above
// their thresholds. It costs one load if no memory was freed on a stream in the meantime.
void memory_synchronized() noexcept;

}  // namespace ckpt::shim
