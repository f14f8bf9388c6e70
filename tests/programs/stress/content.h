// SPDX-License-Identifier: Apache-2.0
// The content of a buffer of stress: a function of its seed, its version and the place, at any size from one
// byte. The content is as hard to compress as random bytes. The kernels and the host share this file.
#pragma once

#include <stdint.h>

#if defined(__CUDACC__)
#define STRESS_CONTENT static __device__ __forceinline__
#else
#define STRESS_CONTENT static inline
#endif

STRESS_CONTENT uint64_t content_word(uint64_t seed, uint32_t version, uint64_t index) {
  uint64_t x = seed + version * 0xD1B54A32D192ED03ull + index * 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

STRESS_CONTENT uint8_t content_byte(uint64_t seed, uint32_t version, uint64_t at) {
  return static_cast<uint8_t>(content_word(seed, version, at / 8) >> (at % 8 * 8));
}
