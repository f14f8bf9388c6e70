// SPDX-License-Identifier: Apache-2.0
// A Huffman code as a table of what the next kMaxCodeBits bits mean: all symbols that are whole in them. The
// planes of floats that shrink take two to four bits a symbol, so one look-up gives about three symbols.
// Decoding waits for look-ups.
//
// Threads: an object belongs to one thread at a time. build() needs AVX2. No function fails.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "libckpt/datapath/codec/huffman/huffman_lengths.h"
#include "libckpt/datapath/codec/huffman/huffman_order.h"

namespace ckpt::codec {

class HuffmanTable {
 public:
  static constexpr unsigned kIndexBits = kMaxCodeBits;
  // So many symbols come of one look-up at most, and one at least.
  static constexpr unsigned kMaxSymbols = 6;

  // `order` is that of `lengths`.
  void build(const CodeLengths& lengths, const CodeOrder& order) noexcept;

  // Of 2^kMaxCodeBits entries: the symbols from the lowest byte on, in byte 6 how many there are, in byte 7
  // the bits that they take.
  [[nodiscard]] const std::uint64_t* entries() const noexcept { return entries_.data(); }
  [[nodiscard]] unsigned bits_of(std::uint8_t symbol) const noexcept { return lengths_.bits[symbol]; }

 private:
  static constexpr std::size_t kEntries = std::size_t{1} << kMaxCodeBits;
  // Of what stands behind an entry's first symbol: all that its code leaves, but behind a code of one bit,
  // where more symbols would come of it than an entry holds, and cutting them off costs more than it gains.
  static constexpr unsigned kMaxTailBits = kMaxCodeBits - 2, kTailBitsOfOne = 8;

  [[nodiscard]] std::uint64_t without_last(std::uint64_t entry) const noexcept;  // of kMaxSymbols
  void build_tails(const CodeOrder& order, unsigned max_bits) noexcept;
  void build_entries(const CodeOrder& order, unsigned max_tail_bits) noexcept;

  CodeLengths lengths_{};
  alignas(64) std::array<std::uint64_t, kEntries> entries_{};
  // For each number of bits b, from 2^b on, what b bits say: no symbol, perhaps, and one less than an entry
  // holds at most.
  alignas(64) std::array<std::uint64_t, std::size_t{2} << kMaxTailBits> tails_{};
};

}  // namespace ckpt::codec
