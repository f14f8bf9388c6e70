// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/heap.h"

#include <malloc.h>

namespace ckpt::mover {
namespace {

// The maximum number of arenas. The path of chunks allocates no memory, so threads seldom compete for an
// arena.
constexpr int kMaxArenas = 4;
// The size from which blocks are allocated outside the arenas. Once set, the threshold no longer grows. UCX
// allocates pools in aligned pieces of 2 MiB, which leave holes of that size in an arena.
constexpr int kLargeBlockBytes = 1 << 20;

}  // namespace

void bound_heap() {
  ::mallopt(M_ARENA_MAX, kMaxArenas);
  ::mallopt(M_MMAP_THRESHOLD, kLargeBlockBytes);
  ::mallopt(M_TRIM_THRESHOLD, kLargeBlockBytes);
}

void give_back_free_heap() {
  ::malloc_trim(0);
}

}  // namespace ckpt::mover
