// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/measuring/host_read.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "libckpt/datapath/track/read_host.h"

namespace ckpt::bench {
namespace {

constexpr std::size_t kAhead = 4096;  // the hint distance; hardware prefetching stops at the end of each page

template <bool kPrefetch>
[[gnu::target("avx2")]] std::uint64_t read_avx2(const std::byte* data, std::size_t bytes) noexcept {
  __m256i sum[4] = {};
  for (std::size_t at = 0; at + 128 <= bytes; at += 128) {
    if (kPrefetch) {
      _mm_prefetch(reinterpret_cast<const char*>(data + at) + kAhead, _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(data + at) + kAhead + 64, _MM_HINT_T0);
    }
    const auto* vectors = reinterpret_cast<const __m256i*>(data + at);
    for (int i = 0; i < 4; ++i) sum[i] = _mm256_add_epi64(sum[i], _mm256_loadu_si256(vectors + i));
  }
  const __m256i total = _mm256_add_epi64(_mm256_add_epi64(sum[0], sum[1]), _mm256_add_epi64(sum[2], sum[3]));
  const __m128i half = _mm_add_epi64(_mm256_castsi256_si128(total), _mm256_extracti128_si256(total, 1));
  return static_cast<std::uint64_t>(_mm_cvtsi128_si64(half)) +
         static_cast<std::uint64_t>(_mm_extract_epi64(half, 1));
}

template <bool kPrefetch>
[[gnu::target("avx512f")]] std::uint64_t read_avx512(const std::byte* data, std::size_t bytes) noexcept {
  __m512i sum[4] = {};
  for (std::size_t at = 0; at + 256 <= bytes; at += 256) {
    if (kPrefetch)
      for (std::size_t line = 0; line < 256; line += 64)
        _mm_prefetch(reinterpret_cast<const char*>(data + at) + kAhead + line, _MM_HINT_T0);
    for (int i = 0; i < 4; ++i)
      sum[i] = _mm512_add_epi64(sum[i], _mm512_loadu_si512(data + at + 64 * static_cast<std::size_t>(i)));
  }
  const __m512i total = _mm512_add_epi64(_mm512_add_epi64(sum[0], sum[1]), _mm512_add_epi64(sum[2], sum[3]));
  std::array<std::uint64_t, 8> lanes{};
  _mm512_storeu_si512(lanes.data(), total);
  return std::accumulate(lanes.begin(), lanes.end(), std::uint64_t{0});
}

// The read uses four streams in parallel, as a fingerprint does. A single stream leaves the memory idle at
// the end of each page, and reads a quarter less.
constexpr std::size_t kChunk = std::size_t{64} << 10;
constexpr std::size_t kStreams = 4;

std::uint64_t read_streams_avx2(const std::byte* data, std::size_t bytes) noexcept {
  std::uint64_t folded = 0;
  for (std::size_t at = 0; at < bytes; at += kChunk) {
    const std::byte* const next = at + 2 * kChunk <= bytes ? data + at + kChunk : nullptr;
    folded += track::read_host(data + at, std::min(kChunk, bytes - at), next);
  }
  return folded;
}

[[gnu::target("avx512f")]] std::uint64_t read_streams_avx512(const std::byte* data,
                                                             std::size_t bytes) noexcept {
  constexpr std::size_t kStretch = kChunk / kStreams, kAhead = 2048;
  __m512i sum[kStreams] = {};
  std::size_t chunk = 0;
  for (; chunk + kChunk <= bytes; chunk += kChunk) {
    for (std::size_t at = 0; at < kStretch; at += 64) {
      // At the end of this chunk the hint refers to the next chunk. The hinted address need not be readable.
      const std::size_t ahead = at + kAhead < kStretch ? at + kAhead : kChunk + at + kAhead - kStretch;
#pragma GCC unroll 4
      for (std::size_t s = 0; s < kStreams; ++s) {
        const std::byte* const stretch = data + chunk + s * kStretch;
        _mm_prefetch(reinterpret_cast<const char*>(stretch) + ahead, _MM_HINT_T0);
        sum[s] = _mm512_add_epi64(sum[s], _mm512_loadu_si512(stretch + at));
      }
    }
  }
  const __m512i total = _mm512_add_epi64(_mm512_add_epi64(sum[0], sum[1]), _mm512_add_epi64(sum[2], sum[3]));
  std::array<std::uint64_t, 8> lanes{};
  _mm512_storeu_si512(lanes.data(), total);
  return std::accumulate(lanes.begin(), lanes.end(), read_streams_avx2(data + chunk, bytes - chunk));
}

// The AVX2 methods come first, because host_reads() returns the first methods of this list.
constexpr std::array<HostRead, 6> kReads{{{"AVX2", &read_avx2<false>},
                                          {"AVX2, prefetching", &read_avx2<true>},
                                          {"AVX2, four streams", &read_streams_avx2},
                                          {"AVX-512", &read_avx512<false>},
                                          {"AVX-512, prefetching", &read_avx512<true>},
                                          {"AVX-512, four streams", &read_streams_avx512}}};

}  // namespace

std::span<const HostRead> host_reads() noexcept {
  const std::size_t count = __builtin_cpu_supports("avx512f") ? 6 : __builtin_cpu_supports("avx2") ? 3 : 0;
  return std::span(kReads).first(count);
}

}  // namespace ckpt::bench
