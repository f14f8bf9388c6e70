// SPDX-License-Identifier: Apache-2.0
// Settings for the C library's heap in a process that runs for weeks and starts threads for each session.
// Each thread may get its own arena, and free memory of an arena stays in the process. After a large block
// was freed, blocks of its size also come from arenas.
// Threads: any thread may make all calls. Errors: none. A C library that does not know a setting continues
// without it.
#pragma once

namespace ckpt::mover {

// Limits the number of arenas, and returns large blocks to the system when they are freed. Call this function
// at the start of the process, before it has threads.
void bound_heap();
// Returns free memory of the arenas to the system. A concurrent allocation may wait for some milliseconds.
void give_back_free_heap();

}  // namespace ckpt::mover
