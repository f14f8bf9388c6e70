// SPDX-License-Identifier: Apache-2.0
// Fingerprints of host memory, vectorised: the NH sums of one block in scalar code and AVX2 (AVX-512 gains
// nothing: memory is the limit), and the loop over blocks. Inline so that the device code built for the host
// (kernels.cu) is the same code. The processor is asked once.
// No function fails. Definition: fingerprint_core.h.
#pragma once

#include <immintrin.h>

#include <cstring>

#include "libckpt/track/fingerprint_core.h"

namespace ckpt::track {

inline BlockSums nh_block_scalar(const FingerprintTables& tables, const unsigned char* block) noexcept {
  BlockSums sums;
  for (std::uint32_t word = 0; word < kBlockWords; word += 2) {
    std::uint32_t pair[2];
    std::memcpy(pair, block + word * 4, sizeof pair);
    add_pair(tables.nh + word, pair[0], pair[1], sums);
  }
  return sums;
}

[[gnu::target("avx2")]] inline std::uint64_t add_lanes_avx2(__m256i value) noexcept {
  const __m128i two = _mm_add_epi64(_mm256_castsi256_si128(value), _mm256_extracti128_si256(value, 1));
  return static_cast<std::uint64_t>(_mm_cvtsi128_si64(two)) +
         static_cast<std::uint64_t>(_mm_extract_epi64(two, 1));
}

[[gnu::target("avx2")]] inline BlockSums nh_block_avx2(const FingerprintTables& tables,
                                                       const unsigned char* block) noexcept {
  __m256i y0 = _mm256_setzero_si256(), y1 = y0, y2 = y0;
  const auto* keys = reinterpret_cast<const __m256i*>(tables.nh);
  for (std::uint32_t v = 0; v < kBlockWords / 8; ++v) {
    // A block ahead: hardware prefetching ends at each page, which costs a third of the rate from memory.
    if (v % 2 == 0) _mm_prefetch(reinterpret_cast<const char*>(block) + kBlockBytes + v * 32, _MM_HINT_T0);
    const __m256i m = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block) + v);
    const __m256i s0 = _mm256_add_epi32(m, _mm256_load_si256(keys + v));
    const __m256i s1 = _mm256_add_epi32(m, _mm256_load_si256(keys + v + 1));
    const __m256i s2 = _mm256_add_epi32(m, _mm256_load_si256(keys + v + 2));
    y0 = _mm256_add_epi64(y0, _mm256_mul_epu32(s0, _mm256_srli_epi64(s0, 32)));
    y1 = _mm256_add_epi64(y1, _mm256_mul_epu32(s1, _mm256_srli_epi64(s1, 32)));
    y2 = _mm256_add_epi64(y2, _mm256_mul_epu32(s2, _mm256_srli_epi64(s2, 32)));
  }
  return BlockSums{{add_lanes_avx2(y0), add_lanes_avx2(y1), add_lanes_avx2(y2)}};
}

template <BlockSums (*kBlock)(const FingerprintTables&, const unsigned char*) noexcept>
Fingerprint fingerprint_with(const FingerprintTables& tables, const void* data,
                             std::uint64_t bytes) noexcept {
  const auto* at = static_cast<const unsigned char*>(data);
  std::uint64_t left = bytes;
  Chain chain;
  for (; left >= kBlockBytes; left -= kBlockBytes, at += kBlockBytes) chain.add(tables, kBlock(tables, at));
  if (left > 0) {
    alignas(64) unsigned char last[kBlockBytes] = {};
    std::memcpy(last, at, left);
    chain.add(tables, kBlock(tables, last));
  }
  return chain.finish(tables, bytes);
}

using FingerprintFunction = Fingerprint (*)(const FingerprintTables&, const void*, std::uint64_t) noexcept;

// The fastest one here.
inline FingerprintFunction pick_fingerprint() noexcept {
  if (__builtin_cpu_supports("avx2")) return &fingerprint_with<&nh_block_avx2>;
  return &fingerprint_with<&nh_block_scalar>;
}

inline Fingerprint fingerprint_host(const FingerprintTables& tables, const void* data,
                                    std::uint64_t bytes) noexcept {
  static const FingerprintFunction function = pick_fingerprint();
  return function(tables, data, bytes);
}

}  // namespace ckpt::track
