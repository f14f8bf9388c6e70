// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/heap.h"

#include <malloc.h>

namespace ckpt::mover {
namespace {

// Nothing allocates where chunks pass by, so that threads seldom meet.
constexpr int kMaxArenas = 4;
// Set once, it does not grow. UCX takes pools in aligned pieces of 2 MiB, which leave holes of their size in
// an arena.
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
