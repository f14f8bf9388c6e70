// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/codec/blocks.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/unit/libckpt/datapath/codec/chunks.h"

namespace ckpt::codec {
namespace {

using Bytes = std::vector<std::byte>;
using Mask = std::vector<std::uint32_t>;

Bytes chunk_of(std::size_t bytes, std::uint64_t seed = 1) {
  return test::make_chunk(test::Kind::kRandom, bytes, seed);
}

Mask mask_of(std::size_t chunk_bytes, std::initializer_list<std::size_t> blocks) {
  Mask mask(block_mask_words(chunk_bytes));
  for (const std::size_t block : blocks) set_block(mask, block);
  return mask;
}

Bytes encoded(const Bytes& chunk, const Mask& mask) {
  Bytes out(chunk.size());
  const auto size = encode_blocks(chunk, mask, out);
  EXPECT_TRUE(size.has_value());
  out.resize(size.value_or(0));
  EXPECT_EQ(out.size(), blocks_size(chunk.size(), mask));
  return out;
}

TEST(Blocks, AnyPatchTurnsTheOldChunkIntoTheNewChunk) {
  std::mt19937_64 random(5);
  int patches = 0;
  for (const std::size_t bytes :
       {4096UL + 9, 8192UL, 65536UL, 65536UL - 1, 65536UL + 1, 131072UL, 135168UL, 2UL << 20}) {
    for (int turn = 0; turn < 40; ++turn) {
      const Bytes old = chunk_of(bytes, 7);
      Bytes fresh = old;
      Mask mask(block_mask_words(bytes));
      for (std::size_t block = 0; block < block_count(bytes); ++block) {
        if (random() % 40 > static_cast<std::uint64_t>(turn)) continue;
        set_block(mask, block);
        fresh[std::min(bytes - 1, block * 4096 + random() % 4096)] ^= std::byte{0x40};
      }
      Bytes out(bytes + 8, std::byte{0x5a});
      const auto size = encode_blocks(fresh, mask, std::span(out).first(bytes));
      if (!size) continue;
      ++patches;
      ASSERT_LT(*size, bytes);
      const auto patch = parse_blocks(std::span(out).first(*size), bytes);
      ASSERT_TRUE(patch.has_value()) << patch.error().to_string();
      Bytes held = old;
      std::size_t changed = 0, end = 0;
      for (const Piece& piece : *patch) {
        ASSERT_TRUE(piece.offset == 0 || piece.offset > end) << "neighbours are one piece";
        ASSERT_FALSE(piece.bytes.empty());
        end = piece.offset + piece.bytes.size();
        ASSERT_LE(end, bytes);
        std::copy(piece.bytes.begin(), piece.bytes.end(),
                  held.begin() + static_cast<std::ptrdiff_t>(piece.offset));
        changed += piece.bytes.size();
      }
      EXPECT_EQ(changed, patch->changed_bytes());
      ASSERT_EQ(held, fresh) << bytes << " bytes, turn " << turn;
      for (std::size_t at = bytes; at < out.size(); ++at) ASSERT_EQ(out[at], std::byte{0x5a});
    }
  }
  EXPECT_GT(patches, 150);
}

TEST(Blocks, PatchMatchesTheDocumentedFormat) {
  const Bytes chunk = chunk_of(40 * 4096 + 100);
  const Bytes patch = encoded(chunk, mask_of(chunk.size(), {1, 40}));
  ASSERT_EQ(patch.size(), 8U + 4096 + 100);
  EXPECT_EQ(patch[0], std::byte{2});
  EXPECT_EQ(patch[5], std::byte{1});
  EXPECT_TRUE(std::equal(patch.begin() + 8, patch.begin() + 8 + 4096, chunk.begin() + 4096));
  EXPECT_TRUE(std::equal(patch.begin() + 8 + 4096, patch.end(), chunk.begin() + 40 * 4096));
}

TEST(Blocks, UnchangedChunkGivesAnEmptyPatch) {
  const Bytes chunk = chunk_of(65536);
  const Bytes bytes = encoded(chunk, mask_of(65536, {}));
  const auto patch = parse_blocks(bytes, 65536).value();
  EXPECT_TRUE(patch.begin() == patch.end());
  EXPECT_EQ(patch.changed_bytes(), 0U);
}

TEST(Blocks, PatchLongerThanTheChunkIsNotEncoded) {
  const Bytes chunk = chunk_of(65536);
  Bytes out(65536 * 2);
  Mask all(1, 0xffffU);
  EXPECT_FALSE(encode_blocks(chunk, all, out).has_value()) << "longer than the chunk";
  EXPECT_FALSE(encode_blocks(chunk, mask_of(65536 * 4, {0}), out).has_value()) << "a mask of another length";
  EXPECT_FALSE(encode_blocks(chunk, Mask(1, 0x10000U), out).has_value()) << "a block behind the end";
  EXPECT_FALSE(encode_blocks(chunk, mask_of(65536, {0}), std::span(out).first(4099)).has_value());
  EXPECT_TRUE(encode_blocks(chunk, mask_of(65536, {0}), std::span(out).first(4100)).has_value());
  EXPECT_FALSE(encode_blocks({}, {}, out).has_value());
}

void expect_corrupt(std::span<const std::byte> patch, std::size_t chunk_bytes, const std::string& what) {
  const Bytes exact(patch.begin(), patch.end());
  const auto parsed = parse_blocks(exact, chunk_bytes);
  ASSERT_FALSE(parsed.has_value()) << what;
  EXPECT_EQ(parsed.error().code(), ErrorCode::kCorrupt) << what;
}

TEST(Blocks, MalformedPatchesAreRefused) {
  const std::size_t bytes = 33 * 4096 - 5;
  const Bytes chunk = chunk_of(bytes);
  const Bytes patch = encoded(chunk, mask_of(bytes, {0, 3, 32}));
  ASSERT_TRUE(parse_blocks(patch, bytes).has_value());
  for (std::size_t cut = 0; cut < patch.size(); ++cut) {
    expect_corrupt(std::span(patch).first(cut), bytes, "cut to " + std::to_string(cut));
  }
  for (std::size_t bit = 0; bit < 64; ++bit) {
    Bytes flipped = patch;
    flipped[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    expect_corrupt(flipped, bytes, "mask bit " + std::to_string(bit));
  }
  for (const std::size_t other :
       {0UL, 1UL, 4096UL, bytes - 4096, bytes - 1, bytes + 1, bytes + 32 * 4096, std::size_t{1} << 40}) {
    expect_corrupt(patch, other, "for a chunk of " + std::to_string(other));
  }
}

TEST(Blocks, RandomBytesNeverGivePiecesOutsideTheChunk) {
  std::mt19937_64 random(6);
  int taken = 0;
  for (int turn = 0; turn < 20000; ++turn) {
    const std::size_t chunk_bytes = random() % (6 * 4096);
    // The input has few blocks, so some blocks are correct by chance.
    Bytes input(4 + random() % 3 * 4096 + random() % 2 * (chunk_bytes % 4096));
    for (std::byte& b : std::span(input).first(4)) b = static_cast<std::byte>(random() & random() & random());
    if (turn % 2 == 0) input[1] = input[2] = input[3] = std::byte{0};
    const auto patch = parse_blocks(input, chunk_bytes);
    if (!patch.has_value()) continue;
    ++taken;
    std::size_t changed = 0;
    for (const Piece& piece : *patch) {
      ASSERT_LE(piece.offset + piece.bytes.size(), chunk_bytes);
      ASSERT_GE(piece.bytes.data(), input.data());
      ASSERT_LE(piece.bytes.data() + piece.bytes.size(), input.data() + input.size());
      changed += piece.bytes.size();
    }
    ASSERT_EQ(changed + 4, input.size());
  }
  EXPECT_GT(taken, 100);
}

}  // namespace
}  // namespace ckpt::codec
