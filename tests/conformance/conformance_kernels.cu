// SPDX-License-Identifier: Apache-2.0
// Kernels for the conformance tests, from one source for every driver.
#include <cudasim/kernel.h>

struct Pair {
  uint8_t small;
  uint64_t large;
};

CUDASIM_GLOBAL(uint64_t, launches);

CUDASIM_KERNEL(fill, uint32_t* out, uint32_t first, uint64_t count) {
  CUDASIM_FOR(i, count) out[i] = first + static_cast<uint32_t>(i);
}

CUDASIM_KERNEL(add_one, uint32_t* data, uint64_t count) {
  CUDASIM_FOR(i, count) data[i] += 1;
}

CUDASIM_KERNEL(count_launch) {
  CUDASIM_THREAD_ZERO() {
    cudasim_atomic_add(&launches, uint64_t{1});
  }
}

// A kernel with arguments of every size and alignment.
CUDASIM_KERNEL(mixed, uint8_t a, uint64_t b, uint16_t c, Pair d, uint64_t* out) {
  CUDASIM_THREAD_ZERO() {
    out[0] = a;
    out[1] = b;
    out[2] = c;
    out[3] = d.small;
    out[4] = d.large;
  }
}

// A kernel with one block per row; its threads synchronize in shared memory.
CUDASIM_KERNEL(row_sums, const uint32_t* in, uint32_t* out, uint32_t width) {
  CUDASIM_DYNAMIC_SHARED(uint32_t, part);
  const uint32_t* row = in + uint64_t(CUDASIM_BLOCK_INDEX()) * width;
  CUDASIM_THREADS(t) {
    uint32_t sum = 0;
    for (uint32_t i = t; i < width; i += CUDASIM_BLOCK_THREADS()) sum += row[i];
    part[t] = sum;
  }
  CUDASIM_BARRIER();
  CUDASIM_THREAD_ZERO() {
    uint32_t sum = 0;
    for (uint32_t t = 0; t < CUDASIM_BLOCK_THREADS(); t++) sum += part[t];
    out[CUDASIM_BLOCK_INDEX()] = sum;
  }
}

CUDASIM_KERNEL(store, uint64_t address, uint32_t value) {
  CUDASIM_THREAD_ZERO() {
    *reinterpret_cast<volatile uint32_t*>(address) = value;
  }
}
