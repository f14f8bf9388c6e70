// SPDX-License-Identifier: Apache-2.0
// Encoding::kBlocks, a patch for a chunk of which the other side has an older version. It lists the changed 4
// KiB blocks, followed by their content. It is for jobs that write small scattered parts (hot sets, caches),
// where a whole chunk would be sent for a few pages.
//
//   std::array<std::uint32_t, block_mask_words(kMaxChunkBytes)> mask{};   set_block(mask, i) for each block
//                                                                         that changed
//   if (auto size = encode_blocks(chunk, mask, out)) ...                   // nullopt: the chunk itself is
//                                                                          // shorter
//   CKPT_TRY(patch, parse_blocks(encoded, chunk_bytes));
//   for (const Piece& piece : patch) copy(chunk + piece.offset, piece.bytes);
//
// On the wire (little endian): ceil(blocks / 32) words of u32, then the changed blocks in order. Block i is
// bit i % 32 of word i / 32; unused bits are zero. The last block of a chunk is short if the chunk's length
// is not a multiple of 4 KiB.
//
// Threads: any, stateless; nothing is allocated. Ownership: a Patch points into the parsed bytes. Errors:
// parse_blocks returns kCorrupt for anything that encode_blocks would not have made from a chunk of that
// length. Input is never trusted. Sizes are bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>

#include "libckpt/base/result.h"

namespace ckpt::codec {

inline constexpr std::size_t kPatchBlockBytes = 4096;
[[nodiscard]] constexpr std::size_t block_count(std::size_t chunk_bytes) noexcept {
  return chunk_bytes / kPatchBlockBytes + (chunk_bytes % kPatchBlockBytes != 0 ? 1 : 0);
}
[[nodiscard]] constexpr std::size_t block_mask_words(std::size_t chunk_bytes) noexcept {
  return (block_count(chunk_bytes) + 31) / 32;
}
constexpr void set_block(std::span<std::uint32_t> mask, std::size_t block) noexcept {
  mask[block / 32] |= 1U << (block % 32);
}
[[nodiscard]] constexpr bool has_block(std::span<const std::uint32_t> mask, std::size_t block) noexcept {
  return (mask[block / 32] >> (block % 32) & 1) != 0;
}

// Returns the number of bytes that encode_blocks() would write. Returns 0 if `mask` does not have
// block_mask_words(chunk_bytes) words or names blocks beyond the end.
[[nodiscard]] std::size_t blocks_size(std::size_t chunk_bytes, std::span<const std::uint32_t> mask) noexcept;

// Returns the number of bytes written to `out`. Returns nullopt if the result would be no shorter than the
// chunk, `out` is too short, or the mask does not fit the chunk.
[[nodiscard]] std::optional<std::size_t> encode_blocks(std::span<const std::byte> chunk,
                                                       std::span<const std::uint32_t> mask,
                                                       std::span<std::byte> out) noexcept;

// A run of adjacent blocks.
struct Piece {
  std::size_t offset = 0;  // the offset in the chunk
  std::span<const std::byte> bytes;
};

class Patch {
 public:
  class Iterator {
   public:
    using value_type = Piece;
    using difference_type = std::ptrdiff_t;
    Iterator() = default;
    const Piece& operator*() const noexcept { return piece_; }
    const Piece* operator->() const noexcept { return &piece_; }
    Iterator& operator++() noexcept {
      find_next();
      return *this;
    }
    void operator++(int) noexcept { find_next(); }
    friend bool operator==(const Iterator& it, std::default_sentinel_t) noexcept {
      return it.piece_.bytes.empty();
    }

   private:
    friend class Patch;
    explicit Iterator(const Patch& patch) noexcept;
    void find_next() noexcept;

    std::span<const std::byte> mask_, left_;
    std::size_t chunk_bytes_ = 0;
    std::size_t block_ = 0;  // the next block to check
    Piece piece_;            // the current piece; its bytes are empty at the end of the patch
  };

  [[nodiscard]] Iterator begin() const noexcept { return Iterator(*this); }
  [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }
  [[nodiscard]] std::size_t changed_bytes() const noexcept { return blocks_.size(); }

 private:
  friend Result<Patch> parse_blocks(std::span<const std::byte> encoded, std::size_t chunk_bytes);
  Patch(std::span<const std::byte> mask, std::span<const std::byte> blocks, std::size_t chunk_bytes) noexcept
      : mask_(mask), blocks_(blocks), chunk_bytes_(chunk_bytes) {}

  std::span<const std::byte> mask_, blocks_;
  std::size_t chunk_bytes_;
};

Result<Patch> parse_blocks(std::span<const std::byte> encoded, std::size_t chunk_bytes);

}  // namespace ckpt::codec
