// SPDX-License-Identifier: Apache-2.0
// Stream-ordered allocations. Memory that is freed on a stream is used again in that stream's order. Other
// streams get it once the work before the free has ended. Pools keep memory as the driver's do: until a
// synchronization, and beyond it up to the release threshold.
// Threads: any. Errors: the driver's codes. Units: bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "libckpt/inprocess/shim/memory/state.h"

namespace ckpt::shim {

// With the mutex held, all of these; what comes out in `gone` is dropped after it.
// Gives back the memory of frees whose streams have come to them.
void reclaim_freed(MemoryState& state, Pool& pool, std::vector<Region>& gone);
// Gives up memory that nothing lies in, until the pool has no more than `most` or nothing more can go.
void trim_pool(MemoryState& state, Pool& pool, std::uint64_t most, std::vector<Region>& gone);
// A context is gone, and its streams: nothing waits for them any more.
void end_waits(MemoryState& state, CUcontext context);

// Enters a pool of this device, whose handle the driver has made.
Pool& add_pool(MemoryState& state, CUmemoryPool handle, int device, std::uint64_t most);
// Ends a pool. Memory that the program has allocated from it stays until the program frees it.
void end_pool(MemoryState& state, CUmemoryPool handle);
// The device has no primary context any more: all memory of its pools is gone.
void free_pools(MemoryState& state, int device);

struct StreamPlace {
  CUstream stream = nullptr;
  CUcontext context = nullptr;
  int device = 0;
  std::uint64_t number = 0;  // 0: not known, or one that threads do not share
};
// `per_thread`: what a null stream means (the _ptsz functions).
CUresult place_of(const RealDriver& driver, CUstream stream, bool per_thread, StreamPlace* out);

CUresult allocate_on_stream(MemoryState& state, Pool& pool, std::uint64_t bytes, const StreamPlace& place,
                            CUdeviceptr* out);
// nullopt: not allocated from a pool of ours.
std::optional<CUresult> free_on_stream(MemoryState& state, CUdeviceptr address, const StreamPlace& place);

// The program has synchronized with a stream, an event or a context: pools give up what is above their
// thresholds. Costs one load if no pool was used since.
void memory_synchronized() noexcept;

}  // namespace ckpt::shim
