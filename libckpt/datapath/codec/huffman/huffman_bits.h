// SPDX-License-Identifier: Apache-2.0
// Writes one of the streams of zstd's Huffman literals (RFC 8878 §4.2.2). These are the codes of a run of
// bytes, the last byte's lowest, and a bit that marks the end.
//
// With AVX-512 (VBMI) 64 codes are looked up at once and put together in eights; else one by one.
// Threads: any, stateless; nothing is allocated. No function fails. Sizes are bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "libckpt/datapath/codec/huffman/huffman_lengths.h"

namespace ckpt::codec {

// What is written for each byte.
struct CodeTable {
  alignas(64) std::array<std::uint8_t, kSymbols> low;  // bits of the code
  alignas(64) std::array<std::uint8_t,
                         kSymbols> high;  // those above, and from kLengthShift on how many there are in all
  static constexpr unsigned kLengthShift = 4;
  std::array<std::uint64_t, kSymbols> whole;  // the code in the highest bits, their number in the lowest byte
};
static_assert(kMaxCodeBits <= 8 + CodeTable::kLengthShift && kMaxCodeBits < 16);

void make_code_table(const CodeLengths& lengths, CodeTable& table) noexcept;

// Every stream writes so much behind its end.
inline constexpr std::size_t kStreamSlack = 8;
// Bytes written; every byte of `run` has a code. `out` holds the codes' bits, one more and
// kStreamSlack.
using WriteStream = std::size_t (*)(const CodeTable& table, std::span<const std::byte> run,
                                    std::byte* out) noexcept;
// The fastest one here, and the plain one that it must agree with.
[[nodiscard]] WriteStream write_stream() noexcept;
[[nodiscard]] WriteStream write_stream_plainly() noexcept;

}  // namespace ckpt::codec
