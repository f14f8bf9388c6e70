// SPDX-License-Identifier: Apache-2.0
// Writes what huffman_lengths.h reads: the description of a Huffman code before a block's literals (RFC 8878
// §4.2.1). Weights are packed by FSE where that is shorter, which it nearly always is.
//
// Threads: any, stateless; nothing is allocated.
#pragma once

#include <array>
#include <cstddef>

#include "libckpt/datapath/codec/huffman/huffman_lengths.h"

namespace ckpt::codec {

inline constexpr std::size_t kMaxDescriptionBytes = 128;
using CodeDescription = std::array<std::byte, kMaxDescriptionBytes>;

// Bytes written; 0 if there is no way to say it: more than 128 weights that are all the same, or that do not
// pack. `lengths` fill a complete tree of two symbols at least.
[[nodiscard]] std::size_t describe_code_lengths(const CodeLengths& lengths, CodeDescription& out) noexcept;

}  // namespace ckpt::codec
