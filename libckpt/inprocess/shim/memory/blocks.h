// SPDX-License-Identifier: Apache-2.0
// The blocks: a program's allocations by cuMemAlloc and related functions. Small blocks share slabs, and each
// large block has its own region.
// Threads: any. Errors: the driver's codes, as the driver's own functions return them. Units: bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "libckpt/inprocess/shim/memory/state.h"

namespace ckpt::shim {

// The size from which an allocation has its own region.
inline constexpr std::uint64_t kLargeBytes = std::uint64_t{1} << 20;

// Returns the context that is current on this thread and its device. Without a context, returns the driver's
// error code.
CUresult current_owner(const RealDriver& driver, Owner* owner);

// Returns the context's sticky error, if it has one. The device's facts must have been read before
// (MemoryState::facts_for).
CUresult ask_context(MemoryState& state, const Owner& owner);

CUresult allocate_block(MemoryState& state, const Owner& owner, std::uint64_t bytes, CUdeviceptr* out);

// Adds a block to the table. Call this function and the next two with the mutex held.
void add_block(MemoryState& state, std::uint64_t address, std::uint64_t bytes, std::uint64_t region,
               const Owner& owner);
// Returns the memory of a block, which is no longer in any table, to its heap or pool. Empty regions that no
// pool retains are moved to `gone`. The caller drops them after it has released the lock.
void give_back(MemoryState& state, std::uint64_t address, const Block& block, std::vector<Region>& gone);
// Removes a block from the table and returns its memory.
void remove_block(MemoryState& state, std::uint64_t address, std::vector<Region>& gone);

// Waits, like the driver's own free, for all work submitted to the owner's context (for a pool: to the
// current context). Call it outside the gate.
CUresult wait_for_work(MemoryState& state, const Owner& owner);

// Waits until the work that may use memory of this owner has ended, then frees the block. Returns nullopt for
// an address that is not ours.
std::optional<CUresult> free_block(MemoryState& state, CUdeviceptr address);

// Frees all blocks of a context that was destroyed.
void free_context(MemoryState& state, CUcontext context);
void note_primary_context(MemoryState& state, int device, CUcontext context);
// Returns the primary context as last retained. Returns null if it was never retained.
CUcontext primary_context(MemoryState& state, int device);
void free_primary_context(MemoryState& state, int device);

}  // namespace ckpt::shim
