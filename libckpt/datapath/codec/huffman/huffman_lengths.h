// SPDX-License-Identifier: Apache-2.0
// The description of a Huffman code as zstd writes it before a block's literals (RFC 8878 §4.2.1). It is a
// weight for each symbol, 0 for those that do not occur. Else the code has kMaxCodeBits + 1 - weight bits,
// where the longest code counts as kMaxCodeBits.
//
// Threads: any, stateless; nothing is allocated. Errors: 0 for what this does not read, be it broken or
// merely unusual; input is never trusted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ckpt::codec {

inline constexpr unsigned kMaxCodeBits = 11;
inline constexpr std::size_t kSymbols = 256;

// Bits of each symbol's code, 0 for none. They fill a complete tree: the shares 2^-bits add up to 1.
struct CodeLengths {
  std::array<std::uint8_t, kSymbols> bits;
};

// Bytes that the description takes at the front of `in`.
[[nodiscard]] std::size_t read_code_lengths(std::span<const std::byte> in, CodeLengths& lengths) noexcept;

}  // namespace ckpt::codec
