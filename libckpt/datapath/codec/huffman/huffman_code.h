// SPDX-License-Identifier: Apache-2.0
// The Huffman code of a plane: how often each byte occurs, and how long each one's code is, kMaxCodeBits at
// most.
//
// Threads: any, stateless; nothing is allocated. No function fails.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "libckpt/datapath/codec/huffman/huffman_lengths.h"

namespace ckpt::codec {

using SymbolCounts = std::array<std::uint32_t, kSymbols>;
inline constexpr std::size_t kMaxCounted = std::size_t{1} << 18;

// Of kMaxCounted bytes at most.
void count_symbols(std::span<const std::byte> plane, SymbolCounts& counts) noexcept;

// The shortest code, but for where it would be longer than kMaxCodeBits. Two symbols occur at least, all
// together kMaxCounted times at most.
void make_code_lengths(const SymbolCounts& counts, CodeLengths& lengths) noexcept;

}  // namespace ckpt::codec
