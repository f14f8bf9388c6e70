// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/codec/huffman/huffman_order.h"

#include <immintrin.h>

#include <bit>
#include <cstring>

namespace ckpt::codec {

[[gnu::target("avx2,popcnt")]] void sort_codes(const CodeLengths& lengths, CodeOrder& order) noexcept {
  __m256i all[kSymbols / 32];
  std::memcpy(all, lengths.bits.data(), sizeof all);
  std::uint16_t symbols = 0, entries = 0;
  order.shortest = kMaxCodeBits;
  std::array<std::uint16_t, kMaxCodeBits + 1> next{};
  for (unsigned bits = kMaxCodeBits; bits > 0; --bits) {
    const __m256i wanted = _mm256_set1_epi8(static_cast<char>(bits));
    unsigned count = 0;
    for (const __m256i some : all)
      count += static_cast<unsigned>(
          std::popcount(static_cast<unsigned>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(some, wanted)))));
    order.first_symbol[bits] = next[bits] = symbols;
    order.first_entry[bits] = entries;
    symbols = static_cast<std::uint16_t>(symbols + count);
    entries = static_cast<std::uint16_t>(entries + (count << (kMaxCodeBits - bits)));
    if (count > 0) order.shortest = bits;
  }
  order.first_symbol[0] = symbols;
  for (std::size_t eight = 0; eight < kSymbols; eight += 8) {
    std::uint64_t some;
    std::memcpy(&some, lengths.bits.data() + eight, sizeof some);
    if (some == 0) continue;
    for (std::size_t symbol = eight; symbol < eight + 8; ++symbol)
      if (const unsigned bits = lengths.bits[symbol]; bits > 0)
        order.symbols[next[bits]++] = static_cast<std::uint8_t>(symbol);
  }
}

}  // namespace ckpt::codec
