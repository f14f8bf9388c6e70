// SPDX-License-Identifier: Apache-2.0
// The kernels of hotset. One block handles the pages block, block + blocks, ... of a list (or of a range, if
// the list is null). Its threads handle the words of a page.
#include "tests/programs/hotset/content.h"

CUDASIM_DEVICE uint64_t listed_page(const uint32_t* list, uint64_t first, uint64_t i, uint64_t pages) {
  return list != nullptr ? list[first + i] : (first + i) % pages;
}

// Writes version `version` to `count` pages, and records the version in `versions`.
CUDASIM_KERNEL(write_pages, uint32_t* CUDASIM_RESTRICT memory, uint32_t* CUDASIM_RESTRICT versions,
               const uint32_t* CUDASIM_RESTRICT list, uint64_t first, uint64_t count, uint64_t pages,
               uint64_t seed, uint32_t version) {
  for (uint64_t i = CUDASIM_BLOCK_INDEX(); i < count; i += CUDASIM_GRID_BLOCKS()) {
    const uint64_t page = listed_page(list, first, i, pages);
    const uint32_t page_seed = page_base(seed, page, version);
    uint32_t* const words = memory + page * kPageWords;
    for (uint32_t at = 0; at < kPageWords; at += kThreads) {
      uint32_t* const line = words + at;
      CUDASIM_THREADS(t) {
        line[t] = page_word(page_seed, at + t);
      }
    }
    CUDASIM_THREAD_ZERO() versions[page] = version;
  }
}

// Compares `count` pages with their expected content. result[0] counts the threads that found a difference.
CUDASIM_KERNEL(check_pages, const uint32_t* CUDASIM_RESTRICT memory,
               const uint32_t* CUDASIM_RESTRICT versions, const uint32_t* CUDASIM_RESTRICT list,
               uint64_t first, uint64_t count, uint64_t pages, uint64_t seed, uint32_t* result) {
  CUDASIM_SHARED(uint32_t, difference, kThreads);
  CUDASIM_THREADS(t) {
    difference[t] = 0;
  }
  for (uint64_t i = CUDASIM_BLOCK_INDEX(); i < count; i += CUDASIM_GRID_BLOCKS()) {
    const uint64_t page = listed_page(list, first, i, pages);
    const uint32_t page_seed = page_base(seed, page, versions[page]);
    const uint32_t* const words = memory + page * kPageWords;
    for (uint32_t at = 0; at < kPageWords; at += kThreads) {
      const uint32_t* const line = words + at;
      CUDASIM_THREADS(t) {
        difference[t] |= line[t] ^ page_word(page_seed, at + t);
      }
    }
  }
  CUDASIM_THREADS(t) {
    if (difference[t] != 0) cudasim_atomic_add(result, 1u);
  }
}
