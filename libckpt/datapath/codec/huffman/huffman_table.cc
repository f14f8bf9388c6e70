// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/codec/huffman/huffman_table.h"

#include <immintrin.h>

#include <algorithm>

namespace ckpt::codec {
namespace {

constexpr std::uint64_t kSymbolBytes = 0x0000'ffff'ffff'ffff;

constexpr unsigned count_of(std::uint64_t entry) noexcept {
  return static_cast<unsigned>(entry >> 48 & 0xff);
}

// What an entry becomes when a symbol stands before it: `front` is that symbol's own entry.
constexpr std::uint64_t behind(std::uint64_t front, std::uint64_t entry) noexcept {
  return ((entry & kSymbolBytes) << 8) + (entry & ~kSymbolBytes) + front;
}
constexpr std::uint64_t entry_of(std::uint8_t symbol, unsigned bits) noexcept {
  return static_cast<std::uint64_t>(bits) << 56 | std::uint64_t{1} << 48 | symbol;
}

[[gnu::target("avx2"), gnu::always_inline]] inline void fill(std::uint64_t* out, std::size_t count,
                                                             std::uint64_t value) noexcept {
  const __m256i all = _mm256_set1_epi64x(static_cast<long long>(value));
  std::size_t i = 0;
  for (; i + 4 <= count; i += 4) _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), all);
  for (; i < count; ++i) out[i] = value;
}

[[gnu::target("avx2"), gnu::always_inline]] inline void put_before(std::uint64_t front,
                                                                   const std::uint64_t* entries,
                                                                   std::size_t count,
                                                                   std::uint64_t* out) noexcept {
  const __m256i mask = _mm256_set1_epi64x(static_cast<long long>(kSymbolBytes));
  const __m256i all = _mm256_set1_epi64x(static_cast<long long>(front));
  std::size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const __m256i entry = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(entries + i));
    const __m256i moved = _mm256_slli_epi64(_mm256_and_si256(entry, mask), 8);
    const __m256i rest = _mm256_add_epi64(_mm256_andnot_si256(mask, entry), all);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), _mm256_add_epi64(moved, rest));
  }
  for (; i < count; ++i) out[i] = behind(front, entries[i]);
}

}  // namespace

std::uint64_t HuffmanTable::without_last(std::uint64_t entry) const noexcept {
  constexpr unsigned kLast = (kMaxSymbols - 1) * 8;
  const auto symbol = static_cast<std::uint8_t>(entry >> kLast);
  return entry - (std::uint64_t{symbol} << kLast) - (std::uint64_t{1} << 48) -
         (std::uint64_t{bits_of(symbol)} << 56);
}

[[gnu::target("avx2")]] void HuffmanTable::build_tails(const CodeOrder& order, unsigned max_bits) noexcept {
  for (unsigned b = order.shortest; b <= max_bits; ++b) {
    std::uint64_t* const out = tails_.data() + (std::size_t{1} << b);
    std::uint64_t* at = out + (order.first_entry[b] >> (kMaxCodeBits - b));
    fill(out, static_cast<std::size_t>(at - out), 0);  // codes longer than b
    for (unsigned bits = b; bits >= order.shortest; --bits) {
      const unsigned left = b - bits;
      const std::size_t count = std::size_t{1} << left;
      for (unsigned s = order.first_symbol[bits]; s < order.first_symbol[bits - 1]; ++s, at += count) {
        const std::uint64_t front = entry_of(order.symbols[s], bits);
        if (left < order.shortest) {
          fill(at, count, front);
        } else {
          put_before(front, tails_.data() + count, count, at);
        }
      }
    }
    if (b < order.shortest * kMaxSymbols) continue;
    for (std::uint64_t* entry = out; entry != at; ++entry)
      *entry = count_of(*entry) == kMaxSymbols ? without_last(*entry) : *entry;
  }
}

[[gnu::target("avx2")]] void HuffmanTable::build_entries(const CodeOrder& order,
                                                         unsigned max_tail_bits) noexcept {
  std::uint64_t* at = entries_.data();
  for (unsigned bits = kMaxCodeBits; bits >= order.shortest; --bits) {
    const unsigned left = kMaxCodeBits - bits;
    const unsigned tail = std::min(left, max_tail_bits);
    const std::size_t count = std::size_t{1} << left, same = std::size_t{1} << (left - tail);
    for (unsigned s = order.first_symbol[bits]; s < order.first_symbol[bits - 1]; ++s, at += count) {
      const std::uint64_t front = entry_of(order.symbols[s], bits);
      if (tail < order.shortest) {
        fill(at, count, front);
      } else if (same == 1) {
        put_before(front, tails_.data() + count, count, at);
      } else {
        const std::uint64_t* const entries = tails_.data() + (count / same);
        for (std::size_t i = 0; i < count / same; ++i) fill(at + i * same, same, behind(front, entries[i]));
      }
    }
  }
}

void HuffmanTable::build(const CodeLengths& lengths, const CodeOrder& order) noexcept {
  lengths_ = lengths;
  const unsigned tail = order.shortest == 1 ? kTailBitsOfOne : kMaxCodeBits - order.shortest;
  build_tails(order, tail);
  build_entries(order, tail);
}

}  // namespace ckpt::codec
