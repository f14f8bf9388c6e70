// SPDX-License-Identifier: Apache-2.0
// Decodes what plane_packer.h packs, faster than zstd does: frames whose blocks are Huffman literals alone.
// Straight to their place, with a table of several symbols an entry (huffman_table.h), and four streams at a
// time, as zstd interleaves them.
//
// It leaves the rest to zstd, which decodes or refuses it: matches, single streams, checksums, codes deeper
// than 11 bits, broken frames.
//
// Threads: an object belongs to one thread at a time; nothing is allocated after create(). Errors: false for
// what it leaves; the plane may have been written. Input is never trusted. Sizes are bytes.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "libckpt/base/result.h"
#include "libckpt/datapath/codec/huffman/huffman_pairs.h"
#include "libckpt/datapath/codec/huffman/huffman_streams.h"
#include "libckpt/datapath/codec/huffman/huffman_table.h"
#include "libckpt/datapath/codec/huffman/prefetch_queue.h"

namespace ckpt::codec {

class HuffmanFrames {
 public:
  // Whether this processor has what decode() is made of (AVX2, BMI2).
  [[nodiscard]] static bool supported() noexcept;
  static Result<std::unique_ptr<HuffmanFrames>> create();

  // Only where supported(). True: `frame` decodes to exactly this plane.
  [[nodiscard]] bool decode(std::span<const std::byte> frame, std::span<std::byte> plane) noexcept {
    PrefetchQueue nothing;
    return decode(frame, plane, nothing);
  }
  // Brings `upcoming` into the cache meanwhile.
  [[nodiscard]] bool decode(std::span<const std::byte> frame, std::span<std::byte> plane,
                            PrefetchQueue& upcoming) noexcept;

 private:
  HuffmanFrames() = default;
  // The literals of one block; what they take of `in` and give of `out` is cut off the two.
  [[nodiscard]] bool decode_literals(std::span<const std::byte>& in, std::span<std::byte>& out,
                                     PrefetchQueue& upcoming) noexcept;
  [[nodiscard]] bool decode_streams(std::span<const std::byte> in, std::span<std::byte> out,
                                    PrefetchQueue& upcoming) noexcept;

  void build(const CodeLengths& lengths) noexcept;

  // Which of the two is that of a block of the same frame.
  enum class Built { kNone, kTable, kPairs } built_ = Built::kNone;
  HuffmanTable table_;
  HuffmanPairs pairs_;
  std::array<std::byte, kSpareBytes> spare_{};
};

}  // namespace ckpt::codec
