// SPDX-License-Identifier: Apache-2.0
// The program's CUDA contexts, and the stop of everything it does on the GPU.
// Threads: note and forget from hooks (gate entered); the others from one thread at a time, which is not
// inside the gate.
// Ownership: none; a context lives as long as the program keeps it.
#pragma once

#include <atomic>

#include "libckpt/base/clock.h"
#include "libckpt/base/result.h"
#include "libckpt/inprocess/shim/core/real_driver.h"

namespace ckpt::shim {

// Calls `start` once, when the program has its first context: on the program's thread, inside the gate.
void at_first_context(void (*start)()) noexcept;
// After each call that works with a context only. The runtime library makes contexts by private tables, too.
inline std::atomic<void (*)()> g_first_context{nullptr};
void run_first_context() noexcept;
inline void note_first_context() noexcept {
  if (g_first_context.load(std::memory_order_relaxed) != nullptr) [[unlikely]]
    run_first_context();
}

// A context that the program has made, or ended. Primary contexts are found without.
void note_context(CUcontext context) noexcept;
void forget_context(CUcontext context) noexcept;
void note_green_context(CUgreenCtx context) noexcept;
void forget_green_context(CUgreenCtx context) noexcept;

// Closes the gate while no stream is being captured, waits for the end of all work in every context, and
// until no thread is in a call that waits for it. After success nothing of the program is in the driver or on
// a GPU until gate().open(). On failure the gate is open again and the job runs on: kTimedOut names the call
// waited for, kDevice the context that failed.
Result<void> quiesce(Nanos timeout);

}  // namespace ckpt::shim
