// SPDX-License-Identifier: Apache-2.0
// The program's CUDA contexts, and the stop of all its work on the GPU.
// Threads: hooks call note and forget (gate entered). One thread at a time, outside the gate, calls the
// others. Ownership: none; a context exists as long as the program retains it.
#pragma once

#include <atomic>

#include "libckpt/base/clock.h"
#include "libckpt/base/result.h"
#include "libckpt/inprocess/shim/core/real_driver.h"

namespace ckpt::shim {

// Calls `start` once, when the program has its first context. The call is on the program's thread, inside the
// gate.
void at_first_context(void (*start)()) noexcept;
// Runs after each call that only succeeds with a context. The runtime library also makes contexts through
// private tables.
inline std::atomic<void (*)()> g_first_context{nullptr};
void run_first_context() noexcept;
inline void note_first_context() noexcept {
  if (g_first_context.load(std::memory_order_relaxed) != nullptr) [[unlikely]]
    run_first_context();
}

// Notes a context that the program has made. erase_context() notes its end. Primary contexts are found
// without these calls.
void note_context(CUcontext context) noexcept;
void erase_context(CUcontext context) noexcept;
void note_green_context(CUgreenCtx context) noexcept;
void erase_green_context(CUgreenCtx context) noexcept;

// Closes the gate while no stream is being captured. It then waits for the end of all work in every context,
// and until no thread is in a call that waits for work. After success, nothing of the program is in the
// driver or on a GPU until gate().open(). On failure the gate is open again and the job continues. kTimedOut
// names the call that did not end, and kDevice the context that failed.
Result<void> quiesce(Nanos timeout);

}  // namespace ckpt::shim
