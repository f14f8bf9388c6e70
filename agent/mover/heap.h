// SPDX-License-Identifier: Apache-2.0
// The C library's heap in a process that lives for weeks and starts threads for each session. Each thread may
// get an arena of its own, and free memory of an arena stays in the process. Large blocks come out of arenas,
// too, once one of their size was given back.
// Threads: all calls from any. Errors: none; a C library that does not know a setting goes on without it.
#pragma once

namespace ckpt::mover {

// Sets few arenas, and lets large blocks go back to the system when they are freed. Called at the start of
// the process, before it has threads.
void bound_heap();
// Returns free memory of the arenas to the system. A thread that allocates meanwhile may wait for some
// milliseconds.
void give_back_free_heap();

}  // namespace ckpt::mover
