// SPDX-License-Identifier: Apache-2.0
// The symbols of a Huffman code in the order of its codes, as zstd lays them out (RFC 8878 §4.2.1.3). Longest
// codes come first, those of a length by their value. What the tables of huffman_table.h and huffman_pairs.h
// are built from.
//
// Threads: any, stateless. Needs AVX2. No function fails.
#pragma once

#include <array>
#include <cstdint>

#include "libckpt/datapath/codec/huffman/huffman_lengths.h"

namespace ckpt::codec {

struct CodeOrder {
  std::array<std::uint8_t, kSymbols> symbols;
  // By the length of a code: where its symbols start, up to those of the length below; and where its first
  // code stands among all 2^kMaxCodeBits combinations of bits.
  std::array<std::uint16_t, kMaxCodeBits + 1> first_symbol, first_entry;
  unsigned shortest;
};

void sort_codes(const CodeLengths& lengths, CodeOrder& order) noexcept;

}  // namespace ckpt::codec
