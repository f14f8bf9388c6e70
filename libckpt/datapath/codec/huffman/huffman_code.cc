// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/codec/huffman/huffman_code.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace ckpt::codec {
namespace {

// A symbol below how often it occurs.
constexpr unsigned kSymbolBits = 8;
using Sorted = std::array<std::uint32_t, kSymbols>;

// Those that occur, the rarest first, so many of them. Digit by digit: comparing would guess wrong at every
// other step.
std::size_t sort_symbols(const SymbolCounts& counts, Sorted& sorted) noexcept {
  constexpr unsigned kDigitBits = 6;
  Sorted other;
  std::size_t symbols = 0;
  std::uint32_t all = 0;
  for (std::uint32_t s = 0; s < kSymbols; ++s) {
    sorted[symbols] = counts[s] << kSymbolBits | s;
    all |= counts[s];
    symbols += counts[s] > 0 ? 1 : 0;
  }
  std::uint32_t *from = sorted.data(), *to = other.data();
  for (unsigned digit = 0; all >> digit != 0; digit += kDigitBits) {
    const auto digit_of = [&](std::uint32_t key) {
      return key >> (kSymbolBits + digit) & ((1U << kDigitBits) - 1);
    };
    std::array<std::uint8_t, 1U << kDigitBits> place{};
    for (std::size_t i = 0; i < symbols; ++i) ++place[digit_of(from[i])];
    std::uint8_t next = 0;  // 256 of one digit wrap to where they start
    for (std::uint8_t& first : place) next = static_cast<std::uint8_t>(next + std::exchange(first, next));
    for (std::size_t i = 0; i < symbols; ++i) to[place[digit_of(from[i])]++] = from[i];
    std::swap(from, to);
  }
  if (from != sorted.data()) std::memcpy(sorted.data(), from, symbols * sizeof *from);
  return symbols;
}

// How many codes there are of each length.
using Depths = std::array<unsigned, kSymbols>;

// Huffman's tree over sorted counts: always the two rarest, be they symbols or what two became, which come in
// order as well.
void make_tree(const Sorted& sorted, std::size_t symbols, Depths& depths) noexcept {
  constexpr std::uint32_t kNone = UINT32_MAX;
  std::array<std::uint32_t, kSymbols + 1> leaves{}, nodes{};
  std::array<std::uint8_t, kSymbols> parents{},
      own_leaves{};  // of each node: which other one, how many of its two
  std::uint32_t all = 0;
  for (std::size_t i = 0; i < symbols; ++i) all += sorted[i] >> kSymbolBits;
  // What is rarer than the longest code is good for counts as so much: then hardly any code is too long. The
  // eighth more: it is shorter so on the planes of training jobs.
  const std::uint32_t least = (all >> kMaxCodeBits) + (all >> (kMaxCodeBits + 3));
  for (std::size_t i = 0; i < symbols; ++i) leaves[i] = std::max(sorted[i] >> kSymbolBits, least);
  leaves[symbols] = kNone;
  std::fill_n(nodes.begin(), symbols, kNone);
  std::size_t leaf = 0, node = 0;
  for (std::size_t made = 0; made + 1 < symbols; ++made) {
    std::uint32_t count = 0;
    unsigned of_leaves = 0;
    for (int child = 0; child < 2; ++child) {
      const bool is_leaf = leaves[leaf] <= nodes[node];
      count += is_leaf ? leaves[leaf] : nodes[node];
      parents[node] = static_cast<std::uint8_t>(made);  // the last time it is written, it is right
      leaf += is_leaf ? 1 : 0;
      node += is_leaf ? 0 : 1;
      of_leaves += is_leaf ? 1 : 0;
    }
    nodes[made] = count;
    own_leaves[made] = static_cast<std::uint8_t>(of_leaves);
  }
  // From the root, which was made last, to those that were made before it.
  std::array<std::uint8_t, kSymbols> depth{};
  for (std::size_t i = symbols - 1; i-- > 0;) {
    depth[i] = i + 2 == symbols ? 0 : static_cast<std::uint8_t>(depth[parents[i]] + 1);
    depths[std::size_t{depth[i]} + 1] += own_leaves[i];
  }
}

// Codes that are too long become as long as may be; what that takes of the tree is given back by lengthening
// those that were nearly as long.
void limit(Depths& depths) noexcept {
  constexpr unsigned kFull = 1U << kMaxCodeBits;
  for (std::size_t bits = kMaxCodeBits + 1; bits < depths.size(); ++bits)
    depths[kMaxCodeBits] += std::exchange(depths[bits], 0);
  unsigned share = 0;
  for (unsigned bits = 1; bits <= kMaxCodeBits; ++bits) share += depths[bits] << (kMaxCodeBits - bits);
  while (share > kFull) {
    unsigned bits = kMaxCodeBits - 1;
    while (depths[bits] == 0) --bits;
    --depths[bits];
    ++depths[bits + 1];
    share -= 1U << (kMaxCodeBits - 1 - bits);
  }
  // The last one may have been more than was wanted.
  for (; share < kFull; ++share) {
    --depths[kMaxCodeBits];
    ++depths[kMaxCodeBits - 1];
  }
}

}  // namespace

void count_symbols(std::span<const std::byte> plane, SymbolCounts& counts) noexcept {
  // Planes hit the same few counters over and over, and each such increment waits for the one before.
  constexpr std::size_t kTables = 8;
  using Table = std::array<std::uint16_t, kSymbols>;
  static_assert(kMaxCounted / kTables <= UINT16_MAX);
  alignas(64) std::array<Table, kTables> tables{};
  std::size_t at = 0;
  for (; at + 16 <= plane.size(); at += 16) {
    std::uint64_t first, second;
    std::memcpy(&first, plane.data() + at, sizeof first);
    std::memcpy(&second, plane.data() + at + 8, sizeof second);
#pragma GCC unroll 8
    for (unsigned i = 0; i < 8; ++i) ++tables[i][static_cast<std::uint8_t>(first >> (8 * i))];
#pragma GCC unroll 8
    for (unsigned i = 0; i < 8; ++i) ++tables[i][static_cast<std::uint8_t>(second >> (8 * i))];
  }
  for (; at < plane.size(); ++at) ++tables[at % kTables][std::to_integer<std::size_t>(plane[at])];
  for (std::size_t s = 0; s < kSymbols; ++s) {
    std::uint32_t sum = 0;
    for (const Table& table : tables) sum += table[s];
    counts[s] = sum;
  }
}

void make_code_lengths(const SymbolCounts& counts, CodeLengths& lengths) noexcept {
  Sorted sorted;
  const std::size_t symbols = sort_symbols(counts, sorted);
  Depths depths{};
  make_tree(sorted, symbols, depths);
  limit(depths);
  lengths.bits.fill(0);
  std::size_t left = symbols;
  for (unsigned bits = 1; left > 0; ++bits) {
    for (unsigned i = depths[bits]; i > 0; --i)
      lengths.bits[static_cast<std::uint8_t>(sorted[--left])] = static_cast<std::uint8_t>(bits);
  }
}

}  // namespace ckpt::codec
