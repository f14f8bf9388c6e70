// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/heap.h"

#include <malloc.h>

namespace ckpt::mover {
namespace {

// The path of chunks allocates nothing, so threads seldom meet in an arena.
constexpr int kMaxArenas = 4;
// The threshold does not grow once it is set. UCX takes pools in aligned pieces of 2 MiB, which leave holes
// of their size in an arena.
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
