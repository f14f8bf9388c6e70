// SPDX-License-Identifier: Apache-2.0
// The blocks: a program's allocations by cuMemAlloc and the like. Small ones share slabs, and each large one
// has a region of its own.
// Threads: any. Errors: the driver's codes, as the driver's own functions give them. Units: bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "libckpt/inprocess/shim/memory/state.h"

namespace ckpt::shim {

// From this size an allocation has a region of its own.
inline constexpr std::uint64_t kLargeBytes = std::uint64_t{1} << 20;

// The context that is current on this thread and its device, or the code that the driver answers without one.
CUresult current_owner(const RealDriver& driver, Owner* owner);

// The context's sticky error, if it has one. The device's facts were read (MemoryState::facts_for) before.
CUresult ask_context(MemoryState& state, const Owner& owner);

CUresult allocate_block(MemoryState& state, const Owner& owner, std::uint64_t bytes, CUdeviceptr* out);

// With the mutex held, all of these.
void add_block(MemoryState& state, std::uint64_t address, std::uint64_t bytes, std::uint64_t region,
               const Owner& owner);
// Memory of a block that is in no table any more goes back to its heap or pool. Regions that are empty and
// that no pool keeps are taken out and are to be dropped after the lock is gone.
void give_back(MemoryState& state, std::uint64_t address, const Block& block, std::vector<Region>& gone);
// Takes a block out of the table and gives back its memory.
void remove_block(MemoryState& state, std::uint64_t address, std::vector<Region>& gone);

// As the driver's own free does it: everything that the owner's context (a pool's: the current one) has been
// given ends first. Outside the gate.
CUresult wait_for_work(MemoryState& state, const Owner& owner);

// Waits until the work that may use memory of this owner has ended, then frees. nullopt: not an address of
// ours.
std::optional<CUresult> free_block(MemoryState& state, CUdeviceptr address);

// The context is gone, and all its blocks with it.
void free_context(MemoryState& state, CUcontext context);
void note_primary_context(MemoryState& state, int device, CUcontext context);
// As last retained; null if never.
CUcontext primary_context(MemoryState& state, int device);
void free_primary_context(MemoryState& state, int device);

}  // namespace ckpt::shim
