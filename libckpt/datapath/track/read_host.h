// SPDX-License-Identifier: Apache-2.0
// The fastest plain read of host memory, with which a fingerprint's rate is compared. It reads like
// fingerprint_walk.h (four stretches concurrently, prefetches half a page ahead) and only folds the words.
// The code is inline, so that the device code built for the host (kernels.cu) is the same code. The fold is
// the xor of all 32-bit little-endian words; a short last word is filled up with zeros.
// Threads: pure functions. No function fails.
#pragma once

#include <cstdint>
#include <cstring>

#include "libckpt/base/intrinsics.h"

namespace ckpt::track {

inline std::uint32_t fold_words(const unsigned char* at, std::uint64_t bytes) noexcept {
  std::uint64_t folded = 0;
  for (; bytes >= 8; bytes -= 8, at += 8) {
    std::uint64_t word;
    std::memcpy(&word, at, 8);
    folded ^= word;
  }
  std::uint64_t rest = 0;
  std::memcpy(&rest, at, bytes);
  folded ^= rest;
  return static_cast<std::uint32_t>(folded ^ folded >> 32);
}

// Folds [from, to) of four stretches whose starts are `stretch` bytes apart.
[[gnu::target("avx2")]] inline __m256i fold_stretches(const unsigned char* start, std::uint64_t stretch,
                                                      std::uint64_t from, std::uint64_t to,
                                                      const unsigned char* ahead, __m256i folded) noexcept {
  __m256i other = _mm256_setzero_si256();
  for (std::uint64_t i = from; i < to; i += 64) {
#pragma GCC unroll 4
    for (int s = 0; s < 4; ++s) {
      const unsigned char* at = start + s * stretch + i;
      _mm_prefetch(reinterpret_cast<const char*>(ahead + s * stretch + (i - from)), _MM_HINT_T0);
      folded = _mm256_xor_si256(folded, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
      other = _mm256_xor_si256(other, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + 32)));
    }
  }
  return _mm256_xor_si256(folded, other);
}

[[gnu::target("avx2")]] inline std::uint32_t read_avx2(const unsigned char* at, std::uint64_t bytes,
                                                       const unsigned char* next) noexcept {
  constexpr std::uint64_t kAhead = 2048;
  const std::uint64_t stretch = bytes / 256 * 64;
  const std::uint64_t turn = stretch > kAhead ? stretch - kAhead : 0;
  __m256i folded = fold_stretches(at, stretch, 0, turn, at + kAhead, _mm256_setzero_si256());
  folded = fold_stretches(at, stretch, turn, stretch, next != nullptr ? next : at, folded);
  alignas(32) unsigned char lanes[32];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), folded);
  return fold_words(lanes, sizeof lanes) ^ fold_words(at + 4 * stretch, bytes - 4 * stretch);
}

// Reads the memory and returns its fold. `next` is null, or memory of the same length that will be read next;
// it is only a hint.
inline std::uint32_t read_host(const void* data, std::uint64_t bytes, const void* next = nullptr) noexcept {
  static const bool avx2 = __builtin_cpu_supports("avx2");
  const auto* at = static_cast<const unsigned char*>(data);
  return avx2 ? read_avx2(at, bytes, static_cast<const unsigned char*>(next)) : fold_words(at, bytes);
}

}  // namespace ckpt::track
