// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/codec/blocks.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

namespace ckpt::codec {
namespace {

static_assert(std::endian::native == std::endian::little, "masks are copied without byte swapping");

std::uint32_t mask_word(std::span<const std::byte> mask, std::size_t word) noexcept {
  std::uint32_t value;
  std::memcpy(&value, mask.data() + word * 4, sizeof value);
  return value;
}

std::size_t bytes_of(std::size_t block, std::size_t chunk_bytes) noexcept {
  return std::min(kPatchBlockBytes, chunk_bytes - block * kPatchBlockBytes);
}

// Returns the bytes of the blocks that a mask of the right length names. Returns nullopt if the mask names a
// block beyond the end.
template <class WordAt>
std::optional<std::size_t> named_bytes(std::size_t chunk_bytes, WordAt&& word_at) noexcept {
  const std::size_t blocks = block_count(chunk_bytes);
  if (blocks == 0) return 0;
  std::size_t named = 0;
  for (std::size_t word = 0; word < block_mask_words(chunk_bytes); ++word) {
    named += static_cast<std::size_t>(std::popcount(word_at(word)));
  }
  const std::size_t last = blocks - 1;
  const std::uint32_t last_word = word_at(last / 32);
  if (last % 32 != 31 && last_word >> (last % 32 + 1) != 0) return std::nullopt;
  const std::size_t missing = kPatchBlockBytes - bytes_of(last, chunk_bytes);
  return named * kPatchBlockBytes - ((last_word >> (last % 32) & 1) != 0 ? missing : 0);
}

Error corrupt(std::size_t in, std::size_t chunk_bytes, std::string_view reason) {
  return Error(ErrorCode::kCorrupt, std::to_string(in) +
                                        " bytes cannot be applied as a patch to a chunk of " +
                                        std::to_string(chunk_bytes) + " bytes: " + std::string(reason));
}

}  // namespace

std::size_t blocks_size(std::size_t chunk_bytes, std::span<const std::uint32_t> mask) noexcept {
  if (mask.size() != block_mask_words(chunk_bytes)) return 0;
  const auto named = named_bytes(chunk_bytes, [&](std::size_t word) { return mask[word]; });
  return named ? mask.size_bytes() + *named : 0;
}

std::optional<std::size_t> encode_blocks(std::span<const std::byte> chunk,
                                         std::span<const std::uint32_t> mask,
                                         std::span<std::byte> out) noexcept {
  const std::size_t size = blocks_size(chunk.size(), mask);
  if (size == 0 || size >= chunk.size() || size > out.size()) return std::nullopt;
  std::memcpy(out.data(), mask.data(), mask.size_bytes());
  std::size_t used = mask.size_bytes();
  for (std::size_t block = 0; block < block_count(chunk.size()); ++block) {
    if (!has_block(mask, block)) continue;
    const std::size_t bytes = bytes_of(block, chunk.size());
    std::memcpy(out.data() + used, chunk.data() + block * kPatchBlockBytes, bytes);
    used += bytes;
  }
  return used;
}

Result<Patch> parse_blocks(std::span<const std::byte> encoded, std::size_t chunk_bytes) {
  const std::size_t mask_bytes = block_mask_words(chunk_bytes) * 4;
  if (chunk_bytes == 0 || encoded.size() < mask_bytes) {
    return corrupt(encoded.size(), chunk_bytes, "too short");
  }
  const auto mask = encoded.first(mask_bytes);
  const auto blocks = encoded.subspan(mask_bytes);
  const auto named = named_bytes(chunk_bytes, [&](std::size_t word) { return mask_word(mask, word); });
  if (!named)
    return corrupt(encoded.size(), chunk_bytes, "the patch refers to blocks beyond the end of the chunk");
  if (*named != blocks.size()) {
    return corrupt(encoded.size(), chunk_bytes,
                   "the patch refers to blocks of " + std::to_string(*named) + " bytes");
  }
  return Patch(mask, blocks, chunk_bytes);
}

Patch::Iterator::Iterator(const Patch& patch) noexcept
    : mask_(patch.mask_), left_(patch.blocks_), chunk_bytes_(patch.chunk_bytes_) {
  find_next();
}

void Patch::Iterator::find_next() noexcept {
  const std::size_t blocks = block_count(chunk_bytes_);
  const auto named = [&](std::size_t block) {
    return (mask_word(mask_, block / 32) >> (block % 32) & 1) != 0;
  };
  while (block_ < blocks && !named(block_)) ++block_;
  const std::size_t first = block_;
  while (block_ < blocks && named(block_)) ++block_;
  const std::size_t offset = first * kPatchBlockBytes;
  const std::size_t bytes = first == block_ ? 0 : std::min(block_ * kPatchBlockBytes, chunk_bytes_) - offset;
  piece_ = {offset, left_.first(bytes)};
  left_ = left_.subspan(bytes);
}

}  // namespace ckpt::codec
