// SPDX-License-Identifier: Apache-2.0
// Decodes the four streams that zstd's Huffman literals are, in step, by a table (huffman_table.h,
// huffman_pairs.h).
//
// Threads: any, stateless; nothing is allocated. Needs BMI2. Errors: false unless `in` is four streams that
// end with the last symbols of their parts of `out`, which may have been written. Input is never trusted.
// Sizes are bytes.
#pragma once

#include <cstddef>
#include <span>

#include "libckpt/datapath/codec/huffman/prefetch_queue.h"

namespace ckpt::codec {

// Space for what is written and never read.
inline constexpr std::size_t kSpareBytes = 1024;

// Table: HuffmanTable or HuffmanPairs. Brings `upcoming` into the cache meanwhile.
template <class Table>
[[nodiscard]] bool decode_streams(const Table& table, std::span<const std::byte> in, std::span<std::byte> out,
                                  std::span<std::byte, kSpareBytes> spare_room,
                                  PrefetchQueue& upcoming) noexcept;

}  // namespace ckpt::codec
