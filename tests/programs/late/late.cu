// SPDX-License-Identifier: Apache-2.0
// The kernels of late: slow writers. Every pass stores again (volatile), so that a lost, truncated or
// repeated write is visible.
#include "tests/programs/stress/content.h"

#include <cudasim/kernel.h>

// Adds `rounds` to each word of both arrays, one by one. `host` is host memory that the GPU can access.
CUDASIM_KERNEL(add_slowly, uint64_t* host, uint64_t* device, uint64_t words, uint64_t rounds) {
  CUDASIM_FOR(i, words) {
    volatile uint64_t* there = host + i;
    volatile uint64_t* here = device + i;
    for (uint64_t round = 0; round < rounds; round++) {
      *there = *there + 1;
      *here = *here + 1;
    }
  }
}

// Writes the content of `version`, after `rounds` other contents.
CUDASIM_KERNEL(fill_slowly, uint64_t* memory, uint64_t words, uint64_t seed, uint32_t version,
               uint64_t rounds) {
  CUDASIM_FOR(i, words) {
    volatile uint64_t* word = memory + i;
    for (uint64_t round = rounds; round > 0; round--)
      *word = content_word(seed, version + static_cast<uint32_t>(round), i);
    *word = content_word(seed, version, i);
  }
}
