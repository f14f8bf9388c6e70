// SPDX-License-Identifier: Apache-2.0
// A Huffman code whose codes all have at least kMinBits, as a table of what the next kIndexBits bits mean.
// kMaxCodeBits bits of it are two symbols at most, whatever the table. A bit more makes them two far more
// often. An entry is half as large as in huffman_table.h, so the table is no larger.
//
// Threads: an object belongs to one thread at a time. build() needs AVX2. No function fails.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "libckpt/datapath/codec/huffman/huffman_lengths.h"
#include "libckpt/datapath/codec/huffman/huffman_order.h"

namespace ckpt::codec {

class HuffmanPairs {
 public:
  static constexpr unsigned kIndexBits = kMaxCodeBits + 1;
  static constexpr unsigned kMinBits = 4;
  // So many symbols come of one look-up at most, and one at least.
  static constexpr unsigned kMaxSymbols = 2;

  // `order` is that of `lengths`; its shortest code has kMinBits at least.
  void build(const CodeLengths& lengths, const CodeOrder& order) noexcept;

  // Of 2^kIndexBits entries: the symbols from the lowest byte on, in byte 2 how many there are, in byte 3 the
  // bits that they take.
  [[nodiscard]] const std::uint32_t* entries() const noexcept { return entries_.data(); }
  [[nodiscard]] unsigned bits_of(std::uint8_t symbol) const noexcept { return lengths_.bits[symbol]; }

 private:
  static constexpr std::size_t kEntries = std::size_t{1} << kIndexBits;
  static constexpr unsigned kMaxTailBits = kIndexBits - kMinBits;

  void build_tails(const CodeOrder& order) noexcept;

  CodeLengths lengths_{};
  alignas(64) std::array<std::uint32_t, kEntries> entries_{};
  // For each number of bits b, from 2^b on, what b bits say as a second symbol: none, perhaps.
  alignas(64) std::array<std::uint32_t, std::size_t{2} << kMaxTailBits> tails_{};
};

}  // namespace ckpt::codec
