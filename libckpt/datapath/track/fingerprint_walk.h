// SPDX-License-Identifier: Apache-2.0
// The way in which a processor reads a message for its fingerprint. There are three implementations with
// identical results.
//
// AVX2 reads block after block and prefetches each line a page and a half ahead. Hardware prefetchers handle
// one stream best. The software prefetches load the lines after the page's end (4 KiB), where the hardware's
// prefetches stop. Scalar code, and AVX-512 with IFMA, read four stretches concurrently. Each stretch has its
// own chain, and fingerprint_host.h joins the chains by powers of the points. AVX-512 computes the chains of
// all four stretches in one register. The key words are read once for four blocks. Prefetches go half a block
// ahead into the first-level cache. They go a whole block ahead into the second-level cache, which can wait
// for more lines at the same time.
// Threads: pure functions. No function fails. Definition of the values: fingerprint_core.h.
#pragma once

#include <cstring>

#include "libckpt/base/intrinsics.h"
#include "libckpt/datapath/track/fingerprint_core.h"

namespace ckpt::track {

inline constexpr std::uint32_t kStretches = 4;
inline constexpr std::uint32_t kHalfBytes = kBlockBytes / 2;
inline constexpr std::uint64_t kAheadBytes = 3 * kHalfBytes;

// A walk over four stretches of `blocks` blocks each, which are consecutive at `at`. h[s] is the chain of
// stretch s. If `marks` is not null, marks[block] becomes the mark of each block. `next` is null, or memory
// of the same layout that will be walked next: the end of this walk prefetches it. `next` is only a hint and
// need not be readable.
struct Walk {
  const unsigned char* at;
  std::uint64_t blocks;
  const unsigned char* next;
  std::uint32_t* marks;
  std::uint64_t h[kStretches][2];

  [[nodiscard]] const unsigned char* block(std::uint32_t stretch, std::uint64_t index) const noexcept {
    return at + (stretch * blocks + index) * kBlockBytes;
  }
  // Returns the memory to prefetch while half 0 or 1 of a block is read: the next half.
  [[nodiscard]] const char* ahead(std::uint32_t stretch, std::uint64_t index, int half) const noexcept {
    const unsigned char* next_half = block(stretch, index) + kHalfBytes;
    if (half == 1 && index + 1 == blocks) {
      next_half = next != nullptr ? next + stretch * blocks * kBlockBytes : block(stretch, index);
    } else if (half == 1) {
      next_half += kHalfBytes;
    }
    return reinterpret_cast<const char*>(next_half);
  }
};

// Prefetches the line at `ahead`, and the line half a block after it.
inline void prefetch_lines(const char* ahead) noexcept {
  _mm_prefetch(ahead, _MM_HINT_T0);
  _mm_prefetch(ahead + kHalfBytes, _MM_HINT_T1);
}

using WalkFunction = void (*)(const FingerprintTables&, Walk&) noexcept;
using BlockFunction = BlockSums (*)(const FingerprintTables&, const unsigned char* block) noexcept;

inline std::uint32_t mark_of(std::uint64_t z0) noexcept {
  return static_cast<std::uint32_t>(z0);
}

// Computes steps 3 and 4 for block `index` of a stretch.
inline void chain_block(const FingerprintTables& tables, Walk& walk, std::uint32_t stretch,
                        std::uint64_t index, const BlockSums& sums) noexcept {
  const std::uint64_t z0 = compress(tables, 0, sums);
  const std::uint64_t z1 = compress(tables, 1, sums);
  Chain chain{{walk.h[stretch][0], walk.h[stretch][1]}};
  chain.add(tables, z0, z1);
  walk.h[stretch][0] = chain.h[0];
  walk.h[stretch][1] = chain.h[1];
  if (walk.marks != nullptr) walk.marks[stretch * walk.blocks + index] = mark_of(z0);
}

inline BlockSums nh_block_scalar(const FingerprintTables& tables, const unsigned char* block) noexcept {
  BlockSums sums;
  for (std::uint32_t word = 0; word < kBlockWords; word += 2) {
    std::uint32_t pair[2];
    std::memcpy(pair, block + word * 4, sizeof pair);
    add_pair(tables.nh + word, pair[0], pair[1], sums);
  }
  return sums;
}

inline void walk_scalar(const FingerprintTables& tables, Walk& walk) noexcept {
  for (std::uint64_t i = 0; i < walk.blocks; ++i) {
    for (std::uint32_t s = 0; s < kStretches; ++s)
      chain_block(tables, walk, s, i, nh_block_scalar(tables, walk.block(s, i)));
  }
}

// ---- AVX2

[[gnu::target("avx2")]] inline std::uint64_t add_lanes_avx2(__m256i value) noexcept {
  const __m128i two = _mm_add_epi64(_mm256_castsi256_si128(value), _mm256_extracti128_si256(value, 1));
  return static_cast<std::uint64_t>(_mm_cvtsi128_si64(two)) +
         static_cast<std::uint64_t>(_mm_extract_epi64(two, 1));
}

[[gnu::target("avx2")]] inline __m256i products_avx2(__m256i words, __m256i key) noexcept {
  const __m256i sum = _mm256_add_epi32(words, key);
  return _mm256_mul_epu32(sum, _mm256_srli_epi64(sum, 32));
}

// Adds half a block, with its words from `at` and its keys from `keys`.
[[gnu::target("avx2")]] inline void add_half_avx2(const std::uint32_t* keys, const unsigned char* at,
                                                  const char* ahead, __m256i (&y)[kPasses]) noexcept {
#pragma GCC unroll 4
  for (std::uint32_t v = 0; v < kHalfBytes / 32; ++v) {
    const auto* key = reinterpret_cast<const __m256i*>(keys) + v;
    if (v % 2 == 0) _mm_prefetch(ahead + v * 32, _MM_HINT_T0);
    __m256i m = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at) + v);
    asm("" : "+x"(m));  // memory that may change is read once, not once for each pass
    y[0] = _mm256_add_epi64(y[0], products_avx2(m, _mm256_load_si256(key)));
    y[1] = _mm256_add_epi64(y[1], products_avx2(m, _mm256_load_si256(key + 1)));
    y[2] = _mm256_add_epi64(y[2], products_avx2(m, _mm256_load_si256(key + 2)));
  }
}

[[gnu::target("avx2")]] inline BlockSums sums_ahead_avx2(const FingerprintTables& tables,
                                                         const unsigned char* block,
                                                         const unsigned char* const (&ahead)[2]) noexcept {
  const __m256i zero = _mm256_setzero_si256();
  __m256i y[kPasses] = {zero, zero, zero};
  for (int half = 0; half < 2; ++half)
    add_half_avx2(tables.nh + half * (kHalfBytes / 4), block + half * kHalfBytes,
                  reinterpret_cast<const char*>(ahead[half]), y);
  return BlockSums{{add_lanes_avx2(y[0]), add_lanes_avx2(y[1]), add_lanes_avx2(y[2])}};
}

[[gnu::target("avx2")]] inline BlockSums nh_block_avx2(const FingerprintTables& tables,
                                                       const unsigned char* block) noexcept {
  return sums_ahead_avx2(tables, block, {block, block + kHalfBytes});
}

// Adds `blocks` consecutive blocks at `at` to the content of `chain`. `marks` and `next` are as in Walk.
[[gnu::target("avx2")]] inline void chain_avx2(const FingerprintTables& tables, const unsigned char* at,
                                               std::uint64_t blocks, std::uint32_t* marks,
                                               const unsigned char* next, Chain& chain) noexcept {
  const std::uint64_t bytes = blocks * kBlockBytes;
  // Returns the memory to prefetch while the half block at `here` is read: half a block, kAheadBytes after
  // it.
  const auto ahead = [&](std::uint64_t here) {
    const std::uint64_t wanted = here + kAheadBytes;
    return wanted < bytes ? at + wanted : next != nullptr ? next + (wanted - bytes) : at + here;
  };
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const std::uint64_t here = i * kBlockBytes;
    const BlockSums sums = sums_ahead_avx2(tables, at + here, {ahead(here), ahead(here + kHalfBytes)});
    const std::uint64_t z0 = compress(tables, 0, sums);
    chain.add(tables, z0, compress(tables, 1, sums));
    if (marks != nullptr) marks[i] = mark_of(z0);
  }
}

// ---- AVX-512: lane l of a register represents stretch kStretchOf[l] and polynomial kLaneOf[l].

#define CKPT_AVX512 [[gnu::target("avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]]

inline constexpr std::uint32_t kStretchOf[8] = {0, 1, 0, 1, 2, 3, 2, 3};
inline constexpr std::uint32_t kLaneOf[8] = {0, 0, 1, 1, 0, 0, 1, 1};

CKPT_AVX512 inline __m512i products_avx512(__m512i words, __m512i key) noexcept {
  const __m512i sum = _mm512_add_epi32(words, key);
  return _mm512_mul_epu32(sum, _mm512_srli_epi64(sum, 32));
}

// Returns the sums over the lanes of a, b, c, d, in the order of kStretchOf.
CKPT_AVX512 inline __m512i add_lanes_avx512(__m512i a, __m512i b, __m512i c, __m512i d) noexcept {
  const __m512i ab = _mm512_add_epi64(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
  const __m512i cd = _mm512_add_epi64(_mm512_unpacklo_epi64(c, d), _mm512_unpackhi_epi64(c, d));
  const __m512i all =
      _mm512_add_epi64(_mm512_shuffle_i64x2(ab, cd, 0x88), _mm512_shuffle_i64x2(ab, cd, 0xdd));
  return _mm512_add_epi64(all, _mm512_shuffle_i64x2(all, all, 0xb1));
}

// A factor below 2^61 in two limbs of 52 bits, as IFMA requires.
struct Limbs {
  __m512i low, high;
};
CKPT_AVX512 inline Limbs limbs_of(__m512i value) noexcept {
  return {_mm512_and_si512(value, _mm512_set1_epi64((std::int64_t{1} << 52) - 1)),
          _mm512_srli_epi64(value, 52)};
}

// A sum of products: low + mid * 2^52 + high * 2^104.
struct WideSum {
  __m512i low, mid, high;
};
// Computes sum += a * b for a < 2^52.
CKPT_AVX512 inline void add_product(WideSum& sum, __m512i a, const Limbs& b) noexcept {
  sum.low = _mm512_madd52lo_epu64(sum.low, a, b.low);
  sum.mid = _mm512_madd52lo_epu64(_mm512_madd52hi_epu64(sum.mid, a, b.low), a, b.high);
  sum.high = _mm512_madd52hi_epu64(sum.high, a, b.high);
}
// Returns (sum + more) mod p, for low < 2^58, mid < 2^61, high < 2^18 and more < p: 2^104 = 2^43 and 2^61 = 1
// mod p, and the added values stay below 2^64.
CKPT_AVX512 inline __m512i reduce_sum(const WideSum& sum, __m512i more) noexcept {
  const __m512i prime = _mm512_set1_epi64(static_cast<std::int64_t>(kPrime));
  const __m512i mid_low = _mm512_and_si512(_mm512_slli_epi64(sum.mid, 52), prime);
  const __m512i mid = _mm512_add_epi64(mid_low, _mm512_srli_epi64(sum.mid, 9));
  const __m512i outer = _mm512_add_epi64(sum.low, _mm512_slli_epi64(sum.high, 43));
  const __m512i total = _mm512_add_epi64(_mm512_add_epi64(mid, outer), more);
  const __m512i once = _mm512_add_epi64(_mm512_and_si512(total, prime), _mm512_srli_epi64(total, 61));
  return _mm512_min_epu64(once, _mm512_sub_epi64(once, prime));
}

// The keys of steps 3 and 4, distributed over the lanes.
struct LaneKeys {
  Limbs mix[4];
  Limbs point;
};
CKPT_AVX512 inline LaneKeys lane_keys(const FingerprintTables& tables) noexcept {
  LaneKeys keys{};
  alignas(64) std::uint64_t lanes[8];
  for (int q = 0; q < 5; ++q) {
    for (int l = 0; l < 8; ++l) lanes[l] = q < 4 ? tables.mix[kLaneOf[l]][q] : tables.point[kLaneOf[l]];
    (q < 4 ? keys.mix[q] : keys.point) = limbs_of(_mm512_load_si512(lanes));
  }
  return keys;
}

// Computes step 3 and returns z of all lanes.
CKPT_AVX512 inline __m512i compress_avx512(const LaneKeys& keys, __m512i y0, __m512i y1,
                                           __m512i y2) noexcept {
  const __m512i low48 = _mm512_set1_epi64((std::int64_t{1} << 48) - 1);
  const __m512i rest = _mm512_or_si512(_mm512_srli_epi64(y0, 48),
                                       _mm512_or_si512(_mm512_slli_epi64(_mm512_srli_epi64(y1, 48), 16),
                                                       _mm512_slli_epi64(_mm512_srli_epi64(y2, 48), 32)));
  const __m512i zero = _mm512_setzero_si512();
  WideSum sum{zero, zero, zero};
  add_product(sum, _mm512_and_si512(y0, low48), keys.mix[0]);
  add_product(sum, _mm512_and_si512(y1, low48), keys.mix[1]);
  add_product(sum, _mm512_and_si512(y2, low48), keys.mix[2]);
  add_product(sum, rest, keys.mix[3]);
  return reduce_sum(sum, zero);
}

// Computes step 4 and returns h * point + z of all lanes.
CKPT_AVX512 inline __m512i chain_avx512(const LaneKeys& keys, __m512i h, __m512i z) noexcept {
  const Limbs factor = limbs_of(h);
  const __m512i zero = _mm512_setzero_si512();
  WideSum sum{zero, zero, zero};
  add_product(sum, factor.low, keys.point);
  sum.mid = _mm512_madd52lo_epu64(sum.mid, factor.high, keys.point.low);
  sum.high = _mm512_madd52hi_epu64(sum.high, factor.high, keys.point.low);
  sum.high = _mm512_madd52lo_epu64(sum.high, factor.high, keys.point.high);
  return reduce_sum(sum, z);
}

// Adds half a block of each stretch, with its words from `at` and its keys from `keys`.
CKPT_AVX512 inline void add_half_avx512(const std::uint32_t* keys,
                                        const unsigned char* const (&at)[kStretches],
                                        const char* const (&ahead)[kStretches],
                                        __m512i (&y)[kStretches][kPasses]) noexcept {
  __m512i key = _mm512_load_si512(keys);
#pragma GCC unroll 2
  for (std::uint32_t v = 0; v < kHalfBytes / 64; ++v) {
    // The key words of the middle pass are in two vectors. They are combined, to avoid loads across cache
    // lines.
    const __m512i next_key = _mm512_load_si512(keys + (v + 1) * 16);
    const __m512i middle_key = _mm512_alignr_epi64(next_key, key, 4);
#pragma GCC unroll 4
    for (std::uint32_t s = 0; s < kStretches; ++s) {
      prefetch_lines(ahead[s] + v * 64);
      __m512i m = _mm512_loadu_si512(at[s] + v * 64);
      asm("" : "+v"(m));  // memory that may change is read once, not once for each pass
      y[s][0] = _mm512_add_epi64(y[s][0], products_avx512(m, key));
      y[s][1] = _mm512_add_epi64(y[s][1], products_avx512(m, middle_key));
      y[s][2] = _mm512_add_epi64(y[s][2], products_avx512(m, next_key));
    }
    key = next_key;
  }
}

// Computes steps 2 and 3 for block `index` of all stretches, and returns z of all lanes.
CKPT_AVX512 inline __m512i blocks_avx512(const FingerprintTables& tables, const LaneKeys& keys,
                                         const Walk& walk, std::uint64_t index) noexcept {
  __m512i y[kStretches][kPasses];
  for (auto& stretch : y) {
    for (__m512i& pass : stretch) pass = _mm512_setzero_si512();
  }
  for (int half = 0; half < 2; ++half) {
    const unsigned char* at[kStretches];
    const char* ahead[kStretches];
    for (std::uint32_t s = 0; s < kStretches; ++s) {
      at[s] = walk.block(s, index) + half * kHalfBytes;
      ahead[s] = walk.ahead(s, index, half);
    }
    add_half_avx512(tables.nh + half * (kHalfBytes / 4), at, ahead, y);
  }
  return compress_avx512(keys, add_lanes_avx512(y[0][0], y[1][0], y[2][0], y[3][0]),
                         add_lanes_avx512(y[0][1], y[1][1], y[2][1], y[3][1]),
                         add_lanes_avx512(y[0][2], y[1][2], y[2][2], y[3][2]));
}

CKPT_AVX512 inline void walk_avx512(const FingerprintTables& tables, Walk& walk) noexcept {
  const LaneKeys keys = lane_keys(tables);
  alignas(64) std::uint64_t lanes[8];
  for (int l = 0; l < 8; ++l) lanes[l] = walk.h[kStretchOf[l]][kLaneOf[l]];
  __m512i h = _mm512_load_si512(lanes);
  for (std::uint64_t i = 0; i < walk.blocks; ++i) {
    const __m512i z = blocks_avx512(tables, keys, walk, i);
    h = chain_avx512(keys, h, z);
    if (walk.marks == nullptr) continue;
    _mm512_store_si512(lanes, z);
    for (int l = 0; l < 8; ++l) {
      if (kLaneOf[l] == 0) walk.marks[kStretchOf[l] * walk.blocks + i] = mark_of(lanes[l]);
    }
  }
  _mm512_store_si512(lanes, h);
  for (int l = 0; l < 8; ++l) walk.h[kStretchOf[l]][kLaneOf[l]] = lanes[l];
}

inline bool has_avx512() noexcept {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512ifma");
}

#undef CKPT_AVX512

}  // namespace ckpt::track
