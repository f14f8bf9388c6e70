// SPDX-License-Identifier: Apache-2.0
// The kernels of runtime that are loaded from a file. They use integers, so that the order of additions has
// no effect.
#include <cudasim/kernel.h>

// The number of runs of `turn`: a variable of the library, which moves with the program.
CUDASIM_GLOBAL(uint64_t, turns);

CUDASIM_KERNEL(turn, uint64_t* words, uint64_t count) {
  CUDASIM_FOR(i, count) {
    words[i] = words[i] * 0x9E3779B97F4A7C15ull + turns + i;
  }
}

CUDASIM_KERNEL(end_turn, uint64_t by) {
  CUDASIM_THREAD_ZERO() {
    turns += by;
  }
}
