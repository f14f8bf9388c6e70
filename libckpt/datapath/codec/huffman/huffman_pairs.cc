// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/codec/huffman/huffman_pairs.h"

#include <immintrin.h>

#include <algorithm>

namespace ckpt::codec {
namespace {

constexpr std::uint32_t entry_of(std::uint8_t symbol, unsigned bits) noexcept {
  return bits << 24 | 1U << 16 | symbol;
}
// The same as a second symbol: added to the first one's entry, it gives that of both.
constexpr std::uint32_t second_of(std::uint8_t symbol, unsigned bits) noexcept {
  return bits << 24 | 1U << 16 | std::uint32_t{symbol} << 8;
}

[[gnu::target("avx2"), gnu::always_inline]] inline void fill(std::uint32_t* out, std::size_t count,
                                                             std::uint32_t value) noexcept {
  const __m256i all = _mm256_set1_epi32(static_cast<int>(value));
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), all);
  for (; i < count; ++i) out[i] = value;
}

[[gnu::target("avx2"), gnu::always_inline]] inline void put_before(std::uint32_t front,
                                                                   const std::uint32_t* tails,
                                                                   std::size_t count,
                                                                   std::uint32_t* out) noexcept {
  const __m256i all = _mm256_set1_epi32(static_cast<int>(front));
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256i some = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(tails + i));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), _mm256_add_epi32(some, all));
  }
  for (; i < count; ++i) out[i] = front + tails[i];
}

}  // namespace

[[gnu::target("avx2")]] void HuffmanPairs::build_tails(const CodeOrder& order) noexcept {
  for (unsigned b = order.shortest; b <= kIndexBits - order.shortest; ++b) {
    std::uint32_t* at = tails_.data() + (std::size_t{1} << b);
    const std::size_t longer = order.first_entry[b] >> (kMaxCodeBits - b);
    fill(at, longer, 0);
    at += longer;
    for (unsigned bits = b; bits >= order.shortest; --bits) {
      const std::size_t count = std::size_t{1} << (b - bits);
      for (unsigned s = order.first_symbol[bits]; s < order.first_symbol[bits - 1]; ++s, at += count)
        fill(at, count, second_of(order.symbols[s], bits));
    }
  }
}

[[gnu::target("avx2")]] void HuffmanPairs::build(const CodeLengths& lengths,
                                                 const CodeOrder& order) noexcept {
  lengths_ = lengths;
  build_tails(order);
  std::uint32_t* at = entries_.data();
  for (unsigned bits = kMaxCodeBits; bits >= order.shortest; --bits) {
    const unsigned left = kIndexBits - bits;
    const std::size_t count = std::size_t{1} << left;
    for (unsigned s = order.first_symbol[bits]; s < order.first_symbol[bits - 1]; ++s, at += count) {
      const std::uint32_t front = entry_of(order.symbols[s], bits);
      if (left < order.shortest) {
        fill(at, count, front);
      } else {
        put_before(front, tails_.data() + count, count, at);
      }
    }
  }
}

}  // namespace ckpt::codec
