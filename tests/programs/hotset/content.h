// SPDX-License-Identifier: Apache-2.0
// The content of a page of hotset: a function of the seed, the page and its version. The content is cheap
// enough to be checked at memory speed, and as hard to compress as random bytes. The kernels and their tests
// share this file.
#pragma once

#include <cudasim/kernel.h>

constexpr uint32_t kPageBytes = 4096;
constexpr uint32_t kPageWords = kPageBytes / sizeof(uint32_t);
constexpr uint32_t kThreads = 256;

CUDASIM_DEVICE uint32_t page_base(uint64_t seed, uint64_t page, uint32_t version) {
  uint64_t x = seed + page * 0x9E3779B97F4A7C15ull + version * 0xD1B54A32D192ED03ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return static_cast<uint32_t>(x ^ (x >> 31));
}

CUDASIM_DEVICE uint32_t page_word(uint32_t base, uint32_t index) {
  uint32_t x = base + index * 0x9E3779B9u;
  x ^= x << 13;
  x ^= x >> 17;
  x ^= x << 5;
  return x;
}
