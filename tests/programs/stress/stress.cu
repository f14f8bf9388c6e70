// SPDX-License-Identifier: Apache-2.0
// The kernels of stress.
#include "tests/programs/stress/content.h"

#include <cudasim/kernel.h>

// Counts the launches of `count_launch` since the module was loaded.
CUDASIM_GLOBAL(uint64_t, launches);

CUDASIM_DEVICE uint64_t words_of(uint64_t bytes) {
  return bytes / 8;
}

CUDASIM_DEVICE void fill_range(uint8_t* memory, uint64_t bytes, uint64_t seed, uint32_t version, uint64_t i) {
  if (i < words_of(bytes)) {
    reinterpret_cast<uint64_t*>(memory)[i] = content_word(seed, version, i);
    return;
  }
  for (uint64_t at = i * 8; at < bytes; at++) memory[at] = content_byte(seed, version, at);
}

CUDASIM_DEVICE uint64_t wrong_in(const uint8_t* memory, uint64_t bytes, uint64_t seed, uint32_t version,
                                 uint64_t i) {
  if (i < words_of(bytes))
    return reinterpret_cast<const uint64_t*>(memory)[i] == content_word(seed, version, i) ? 0 : 1;
  uint64_t wrong = 0;
  for (uint64_t at = i * 8; at < bytes; at++) wrong += memory[at] == content_byte(seed, version, at) ? 0 : 1;
  return wrong;
}

CUDASIM_KERNEL(fill, uint8_t* memory, uint64_t bytes, uint64_t seed, uint32_t version) {
  CUDASIM_FOR(i, (bytes + 7) / 8) {
    fill_range(memory, bytes, seed, version, i);
  }
}

// Adds to `wrong` the number of wrong words, and of wrong bytes at the end.
CUDASIM_KERNEL(verify, const uint8_t* memory, uint64_t bytes, uint64_t seed, uint32_t version,
               uint64_t* wrong) {
  CUDASIM_FOR(i, (bytes + 7) / 8) {
    const uint64_t found = wrong_in(memory, bytes, seed, version, i);
    if (found != 0) cudasim_atomic_add(wrong, found);
  }
}

// Fills memory like `fill`, but reads the version from device memory, so that each launch of a graph writes
// new content.
CUDASIM_KERNEL(fill_by, uint8_t* memory, uint64_t bytes, uint64_t seed, const uint32_t* version) {
  CUDASIM_FOR(i, (bytes + 7) / 8) {
    fill_range(memory, bytes, seed, *version, i);
  }
}

CUDASIM_KERNEL(verify_by, const uint8_t* memory, uint64_t bytes, uint64_t seed, const uint32_t* version,
               uint64_t* wrong) {
  CUDASIM_FOR(i, (bytes + 7) / 8) {
    const uint64_t found = wrong_in(memory, bytes, seed, *version, i);
    if (found != 0) cudasim_atomic_add(wrong, found);
  }
}

CUDASIM_KERNEL(next_version, uint32_t* version) {
  CUDASIM_FOR(i, 1) {
    *version += 1;
  }
}

CUDASIM_KERNEL(count_launch, uint64_t by) {
  CUDASIM_FOR(i, 1) {
    launches += by;
  }
}

CUDASIM_KERNEL(read_launches, uint64_t* out) {
  CUDASIM_FOR(i, 1) {
    *out = launches;
  }
}
