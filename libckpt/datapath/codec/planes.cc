// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/codec/planes.h"

#include <immintrin.h>

#include <cstring>

namespace ckpt::codec {
namespace {

template <class Word>
Word load(const std::byte* at) noexcept {
  Word value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <class Word>
void split_scalar_from(std::size_t first, const std::byte* in, const std::byte* previous,
                       std::size_t elements, const PlanesOut& planes) noexcept {
  for (std::size_t i = first; i < elements; ++i) {
    const Word value = load<Word>(in + i * sizeof(Word));
    const Word coded =
        previous == nullptr ? rotated(value) : difference(value, load<Word>(previous + i * sizeof(Word)));
    for (std::size_t p = 0; p < sizeof(Word); ++p) {
      planes[p][i] = static_cast<std::byte>(coded >> (8 * p));
    }
  }
}

template <class Word>
void merge_scalar_from(std::size_t first, const PlanesIn& planes, const std::byte* previous,
                       std::size_t elements, std::byte* out) noexcept {
  for (std::size_t i = first; i < elements; ++i) {
    Word coded = 0;
    for (std::size_t p = 0; p < sizeof(Word); ++p) {
      coded = static_cast<Word>(coded | (static_cast<Word>(planes[p][i]) << (8 * p)));
    }
    const Word value =
        previous == nullptr ? unrotated(coded) : undifference(coded, load<Word>(previous + i * sizeof(Word)));
    std::memcpy(out + i * sizeof(Word), &value, sizeof value);
  }
}

template <class Word>
void split_scalar(const std::byte* in, const std::byte* previous, std::size_t elements,
                  const PlanesOut& planes) noexcept {
  split_scalar_from<Word>(0, in, previous, elements, planes);
}
template <class Word>
void merge_scalar(const PlanesIn& planes, const std::byte* previous, std::size_t elements,
                  std::byte* out) noexcept {
  merge_scalar_from<Word>(0, planes, previous, elements, out);
}

// The vector forms of rotated(), difference() and their inverses, for 16 words of 2 bytes or 8 words of 4
// bytes.
template <int kBytes>
struct Lanes;

template <>
struct Lanes<2> {
  [[gnu::target("avx2")]] static __m256i ordered(__m256i v) noexcept {
    return _mm256_xor_si256(
        v, _mm256_or_si256(_mm256_srai_epi16(v, 15), _mm256_set1_epi16(static_cast<short>(0x8000))));
  }
  [[gnu::target("avx2")]] static __m256i unordered(__m256i v) noexcept {
    const __m256i negative = _mm256_xor_si256(_mm256_srai_epi16(v, 15), _mm256_set1_epi16(-1));
    return _mm256_xor_si256(v, _mm256_or_si256(negative, _mm256_set1_epi16(static_cast<short>(0x8000))));
  }
  [[gnu::target("avx2")]] static __m256i rotated(__m256i v) noexcept {
    return _mm256_or_si256(_mm256_slli_epi16(v, 1), _mm256_srli_epi16(v, 15));
  }
  [[gnu::target("avx2")]] static __m256i unrotated(__m256i v) noexcept {
    return _mm256_or_si256(_mm256_srli_epi16(v, 1), _mm256_slli_epi16(v, 15));
  }
  [[gnu::target("avx2")]] static __m256i difference(__m256i v, __m256i previous) noexcept {
    const __m256i step = _mm256_sub_epi16(ordered(v), ordered(previous));
    return _mm256_xor_si256(_mm256_slli_epi16(step, 1), _mm256_srai_epi16(step, 15));
  }
  [[gnu::target("avx2")]] static __m256i undifference(__m256i v, __m256i previous) noexcept {
    const __m256i odd = _mm256_and_si256(v, _mm256_set1_epi16(1));
    const __m256i step =
        _mm256_xor_si256(_mm256_srli_epi16(v, 1), _mm256_sub_epi16(_mm256_setzero_si256(), odd));
    return unordered(_mm256_add_epi16(step, ordered(previous)));
  }
};

template <>
struct Lanes<4> {
  [[gnu::target("avx2")]] static __m256i ordered(__m256i v) noexcept {
    return _mm256_xor_si256(
        v, _mm256_or_si256(_mm256_srai_epi32(v, 31), _mm256_set1_epi32(static_cast<int>(0x80000000))));
  }
  [[gnu::target("avx2")]] static __m256i unordered(__m256i v) noexcept {
    const __m256i negative = _mm256_xor_si256(_mm256_srai_epi32(v, 31), _mm256_set1_epi32(-1));
    return _mm256_xor_si256(v, _mm256_or_si256(negative, _mm256_set1_epi32(static_cast<int>(0x80000000))));
  }
  [[gnu::target("avx2")]] static __m256i rotated(__m256i v) noexcept {
    return _mm256_or_si256(_mm256_slli_epi32(v, 1), _mm256_srli_epi32(v, 31));
  }
  [[gnu::target("avx2")]] static __m256i unrotated(__m256i v) noexcept {
    return _mm256_or_si256(_mm256_srli_epi32(v, 1), _mm256_slli_epi32(v, 31));
  }
  [[gnu::target("avx2")]] static __m256i difference(__m256i v, __m256i previous) noexcept {
    const __m256i step = _mm256_sub_epi32(ordered(v), ordered(previous));
    return _mm256_xor_si256(_mm256_slli_epi32(step, 1), _mm256_srai_epi32(step, 31));
  }
  [[gnu::target("avx2")]] static __m256i undifference(__m256i v, __m256i previous) noexcept {
    const __m256i odd = _mm256_and_si256(v, _mm256_set1_epi32(1));
    const __m256i step =
        _mm256_xor_si256(_mm256_srli_epi32(v, 1), _mm256_sub_epi32(_mm256_setzero_si256(), odd));
    return unordered(_mm256_add_epi32(step, ordered(previous)));
  }
};

template <int kBytes, bool kDifference>
[[gnu::target("avx2")]] inline __m256i coded(const std::byte* in, const std::byte* previous,
                                             std::size_t at) noexcept {
  const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + at));
  if constexpr (kDifference) {
    return Lanes<kBytes>::difference(v, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(previous + at)));
  } else {
    return Lanes<kBytes>::rotated(v);
  }
}

template <int kBytes, bool kDifference>
[[gnu::target("avx2")]] inline void store_plain(__m256i v, const std::byte* previous, std::byte* out,
                                                std::size_t at) noexcept {
  if constexpr (kDifference) {
    v = Lanes<kBytes>::undifference(v, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(previous + at)));
  } else {
    v = Lanes<kBytes>::unrotated(v);
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + at), v);
}

[[gnu::target("avx2")]] inline void store(std::byte* at, __m256i v) noexcept {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), v);
}
[[gnu::target("avx2")]] inline __m256i load_plane(const std::byte* at) noexcept {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}

// Splits 32 elements per step and returns the number of processed elements, as does the next function.
template <bool kDifference>
[[gnu::target("avx2")]] std::size_t split2_avx2(const std::byte* in, const std::byte* previous,
                                                std::size_t elements, const PlanesOut& planes) noexcept {
  const __m256i low = _mm256_set1_epi16(0xff);
  std::size_t i = 0;
  for (; i + 32 <= elements; i += 32) {
    const __m256i a = coded<2, kDifference>(in, previous, i * 2);
    const __m256i b = coded<2, kDifference>(in, previous, i * 2 + 32);
    const __m256i p0 = _mm256_packus_epi16(_mm256_and_si256(a, low), _mm256_and_si256(b, low));
    const __m256i p1 = _mm256_packus_epi16(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8));
    store(planes[0] + i, _mm256_permute4x64_epi64(p0, 0xd8));
    store(planes[1] + i, _mm256_permute4x64_epi64(p1, 0xd8));
  }
  return i;
}

template <bool kDifference>
[[gnu::target("avx2")]] std::size_t split4_avx2(const std::byte* in, const std::byte* previous,
                                                std::size_t elements, const PlanesOut& planes) noexcept {
  const __m256i by_plane =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  const __m256i in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  std::size_t i = 0;
  for (; i + 32 <= elements; i += 32) {
    const __m256i a = _mm256_shuffle_epi8(coded<4, kDifference>(in, previous, i * 4), by_plane);
    const __m256i b = _mm256_shuffle_epi8(coded<4, kDifference>(in, previous, i * 4 + 32), by_plane);
    const __m256i c = _mm256_shuffle_epi8(coded<4, kDifference>(in, previous, i * 4 + 64), by_plane);
    const __m256i d = _mm256_shuffle_epi8(coded<4, kDifference>(in, previous, i * 4 + 96), by_plane);
    const __m256i ab01 = _mm256_unpacklo_epi32(a, b), ab23 = _mm256_unpackhi_epi32(a, b);
    const __m256i cd01 = _mm256_unpacklo_epi32(c, d), cd23 = _mm256_unpackhi_epi32(c, d);
    store(planes[0] + i, _mm256_permutevar8x32_epi32(_mm256_unpacklo_epi64(ab01, cd01), in_order));
    store(planes[1] + i, _mm256_permutevar8x32_epi32(_mm256_unpackhi_epi64(ab01, cd01), in_order));
    store(planes[2] + i, _mm256_permutevar8x32_epi32(_mm256_unpacklo_epi64(ab23, cd23), in_order));
    store(planes[3] + i, _mm256_permutevar8x32_epi32(_mm256_unpackhi_epi64(ab23, cd23), in_order));
  }
  return i;
}

template <bool kDifference>
[[gnu::target("avx2")]] std::size_t merge2_avx2(const PlanesIn& planes, const std::byte* previous,
                                                std::size_t elements, std::byte* out) noexcept {
  std::size_t i = 0;
  for (; i + 32 <= elements; i += 32) {
    const __m256i p0 = _mm256_permute4x64_epi64(load_plane(planes[0] + i), 0xd8);
    const __m256i p1 = _mm256_permute4x64_epi64(load_plane(planes[1] + i), 0xd8);
    store_plain<2, kDifference>(_mm256_unpacklo_epi8(p0, p1), previous, out, i * 2);
    store_plain<2, kDifference>(_mm256_unpackhi_epi8(p0, p1), previous, out, i * 2 + 32);
  }
  return i;
}

template <bool kDifference>
[[gnu::target("avx2")]] std::size_t merge4_avx2(const PlanesIn& planes, const std::byte* previous,
                                                std::size_t elements, std::byte* out) noexcept {
  std::size_t i = 0;
  for (; i + 32 <= elements; i += 32) {
    const __m256i p0 = load_plane(planes[0] + i), p1 = load_plane(planes[1] + i);
    const __m256i p2 = load_plane(planes[2] + i), p3 = load_plane(planes[3] + i);
    const __m256i low01 = _mm256_unpacklo_epi8(p0, p1), high01 = _mm256_unpackhi_epi8(p0, p1);
    const __m256i low23 = _mm256_unpacklo_epi8(p2, p3), high23 = _mm256_unpackhi_epi8(p2, p3);
    // The next four registers have elements 0-3 and 16-19, 4-7 and 20-23, 8-11 and 24-27, 12-15 and 28-31.
    const __m256i a = _mm256_unpacklo_epi16(low01, low23), b = _mm256_unpackhi_epi16(low01, low23);
    const __m256i c = _mm256_unpacklo_epi16(high01, high23), d = _mm256_unpackhi_epi16(high01, high23);
    store_plain<4, kDifference>(_mm256_permute2x128_si256(a, b, 0x20), previous, out, i * 4);
    store_plain<4, kDifference>(_mm256_permute2x128_si256(c, d, 0x20), previous, out, i * 4 + 32);
    store_plain<4, kDifference>(_mm256_permute2x128_si256(a, b, 0x31), previous, out, i * 4 + 64);
    store_plain<4, kDifference>(_mm256_permute2x128_si256(c, d, 0x31), previous, out, i * 4 + 96);
  }
  return i;
}

void split2_fast(const std::byte* in, const std::byte* previous, std::size_t elements,
                 const PlanesOut& planes) noexcept {
  const std::size_t done = previous == nullptr ? split2_avx2<false>(in, previous, elements, planes)
                                               : split2_avx2<true>(in, previous, elements, planes);
  split_scalar_from<std::uint16_t>(done, in, previous, elements, planes);
}
void split4_fast(const std::byte* in, const std::byte* previous, std::size_t elements,
                 const PlanesOut& planes) noexcept {
  const std::size_t done = previous == nullptr ? split4_avx2<false>(in, previous, elements, planes)
                                               : split4_avx2<true>(in, previous, elements, planes);
  split_scalar_from<std::uint32_t>(done, in, previous, elements, planes);
}
void merge2_fast(const PlanesIn& planes, const std::byte* previous, std::size_t elements,
                 std::byte* out) noexcept {
  const std::size_t done = previous == nullptr ? merge2_avx2<false>(planes, previous, elements, out)
                                               : merge2_avx2<true>(planes, previous, elements, out);
  merge_scalar_from<std::uint16_t>(done, planes, previous, elements, out);
}
void merge4_fast(const PlanesIn& planes, const std::byte* previous, std::size_t elements,
                 std::byte* out) noexcept {
  const std::size_t done = previous == nullptr ? merge4_avx2<false>(planes, previous, elements, out)
                                               : merge4_avx2<true>(planes, previous, elements, out);
  merge_scalar_from<std::uint32_t>(done, planes, previous, elements, out);
}

constexpr PlaneKernels kScalar{split_scalar<std::uint16_t>, split_scalar<std::uint32_t>,
                               merge_scalar<std::uint16_t>, merge_scalar<std::uint32_t>};
constexpr PlaneKernels kAvx2{split2_fast, split4_fast, merge2_fast, merge4_fast};

}  // namespace

const PlaneKernels& scalar_plane_kernels() noexcept {
  return kScalar;
}

const PlaneKernels& plane_kernels() noexcept {
  static const PlaneKernels& kernels = __builtin_cpu_supports("avx2") ? kAvx2 : kScalar;
  return kernels;
}

}  // namespace ckpt::codec
