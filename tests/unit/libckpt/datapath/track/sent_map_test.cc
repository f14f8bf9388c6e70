// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/track/sent_map.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/unit/libckpt/datapath/track/message.h"

namespace ckpt::track {
namespace {

constexpr std::uint64_t kChunk = 65536;

std::shared_ptr<const FingerprintParams> root_params() {
  static const auto expanded = FingerprintParams::expand(test_key(), FingerprintPurpose::kRoot);
  return expanded;
}

SentMap make_map() {
  return SentMap(root_params(), kChunk);
}

// Returns a fingerprint that represents content `n`.
Fingerprint content(std::uint64_t n) {
  return {n, ~n};
}

std::vector<std::uint32_t> dirty(const SentMap& map, std::uint64_t region, std::uint64_t generation,
                                 const std::vector<Fingerprint>& scanned, std::uint32_t first = 0) {
  std::vector<std::uint32_t> out;
  EXPECT_TRUE(map.diff(region, generation, scanned, first, out).has_value());
  return out;
}

TEST(SentMap, ChunksAreDirtyUntilAcknowledged) {
  SentMap map = make_map();
  ASSERT_TRUE(map.add_region(1, 1, 3 * kChunk + 1).has_value());
  EXPECT_EQ(map.missing(), 4u);
  const std::vector<Fingerprint> scanned = {content(0), content(1), content(2), content(3)};
  EXPECT_EQ(dirty(map, 1, 1, scanned), (std::vector<std::uint32_t>{0, 1, 2, 3}));
  ASSERT_TRUE(map.acknowledge(1, 1, 2, content(2)).has_value());
  EXPECT_EQ(dirty(map, 1, 1, scanned), (std::vector<std::uint32_t>{0, 1, 3}));
  EXPECT_EQ(map.missing(), 3u);
}

TEST(SentMap, AChunkThatChangesAndRevertsIsSentAgain) {
  // The chunk has content A at the scan, B at the copy, and A again at the pause. The target has B and
  // reports B. A map with A from the scan would report the chunk as clean.
  SentMap map = make_map();
  ASSERT_TRUE(map.add_region(1, 1, kChunk).has_value());
  const std::vector<Fingerprint> scan_a = {content('A')};
  ASSERT_EQ(dirty(map, 1, 1, scan_a).size(), 1u);
  ASSERT_TRUE(map.acknowledge(1, 1, 0, content('B')).has_value());  // the content that arrived
  EXPECT_EQ(dirty(map, 1, 1, scan_a), (std::vector<std::uint32_t>{0}));
}

TEST(SentMap, AChunkInFlightIsUnknown) {
  SentMap map = make_map();
  ASSERT_TRUE(map.add_region(1, 1, kChunk).has_value());
  ASSERT_TRUE(map.acknowledge(1, 1, 0, content('A')).has_value());
  ASSERT_TRUE(map.forget(1, 1, 0).has_value());  // a message with B has been sent
  EXPECT_EQ(dirty(map, 1, 1, {content('A')}), (std::vector<std::uint32_t>{0}));
  EXPECT_EQ(map.missing(), 1u);
  EXPECT_FALSE(map.root().has_value());
  ASSERT_TRUE(map.forget(1, 1, 0).has_value());
  EXPECT_EQ(map.missing(), 1u);
}

TEST(SentMap, DifferencesOfPartsOfARegionAreReported) {
  SentMap map = make_map();
  ASSERT_TRUE(map.add_region(1, 1, 4 * kChunk).has_value());
  ASSERT_TRUE(map.acknowledge(1, 1, 3, content(3)).has_value());
  EXPECT_EQ(dirty(map, 1, 1, {content(2), content(3)}, 2), (std::vector<std::uint32_t>{2}));
  std::vector<std::uint32_t> out;
  const std::vector<Fingerprint> two(2);
  EXPECT_FALSE(map.diff(1, 1, two, 3, out).has_value());
  EXPECT_FALSE(map.diff(1, 1, two, UINT32_MAX, out).has_value());
  EXPECT_TRUE(out.empty());
}

TEST(SentMap, MessagesOfAnOlderGenerationAreIgnored) {
  SentMap map = make_map();
  ASSERT_TRUE(map.add_region(1, 1, kChunk).has_value());
  ASSERT_TRUE(map.acknowledge(1, 1, 0, content(1)).has_value());
  ASSERT_TRUE(map.add_region(1, 2, 2 * kChunk).has_value());  // the region is freed and allocated again
  EXPECT_EQ(map.missing(), 2u);
  EXPECT_EQ(map.chunk_count(), 2u);
  const auto late = map.acknowledge(1, 1, 0, content(1));
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code(), ErrorCode::kNotFound);
  EXPECT_FALSE(map.add_region(1, 2, kChunk).has_value());
  EXPECT_FALSE(map.add_region(1, 1, kChunk).has_value());
  EXPECT_FALSE(map.drop_region(1, 1));
  EXPECT_TRUE(map.drop_region(1, 2));
  EXPECT_EQ(map.missing(), 0u);
  EXPECT_EQ(map.chunk_count(), 0u);
}

TEST(SentMap, IndicesOutOfRangeAreRefused) {
  SentMap map = make_map();
  ASSERT_TRUE(map.add_region(1, 1, kChunk).has_value());
  EXPECT_EQ(map.acknowledge(1, 1, 1, content(1)).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(map.acknowledge(1, 1, UINT32_MAX, content(1)).error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(map.forget(2, 1, 0).error().code(), ErrorCode::kNotFound);
  EXPECT_FALSE(map.add_region(2, 1, 0).has_value());
  EXPECT_FALSE(map.add_region(2, 1, UINT64_MAX).has_value());
  EXPECT_FALSE(map.find(1, 1, 7).has_value());
}

SentMap complete_map(std::initializer_list<std::uint64_t> order) {
  SentMap map = make_map();
  for (const std::uint64_t region : order) {
    EXPECT_TRUE(map.add_region(region, 1, 2 * kChunk).has_value());
    for (std::uint32_t chunk = 0; chunk < 2; ++chunk)
      EXPECT_TRUE(map.acknowledge(region, 1, chunk, content(region * 10 + chunk)).has_value());
  }
  return map;
}

Fingerprint root_of(const SentMap& map) {
  const auto root = map.root();
  EXPECT_TRUE(root.has_value());
  return root.has_value() ? *root : Fingerprint{};
}

TEST(SentMap, OnlyEqualTablesHaveEqualRoots) {
  const Fingerprint root = root_of(complete_map({1, 2, 3}));
  EXPECT_EQ(root_of(complete_map({3, 1, 2})), root);  // the order of arrival does not matter
  EXPECT_NE(root_of(complete_map({1, 2})), root);
  EXPECT_NE(root_of(complete_map({1, 2, 4})), root);

  SentMap other_bytes = complete_map({1, 2, 3});
  ASSERT_TRUE(other_bytes.acknowledge(2, 1, 1, content(99)).has_value());
  EXPECT_NE(root_of(other_bytes), root);
  ASSERT_TRUE(other_bytes.acknowledge(2, 1, 1, content(21)).has_value());
  EXPECT_EQ(root_of(other_bytes), root);

  SentMap other_generation = complete_map({1, 2});
  ASSERT_TRUE(other_generation.add_region(3, 2, 2 * kChunk).has_value());
  for (std::uint32_t c = 0; c < 2; ++c)
    ASSERT_TRUE(other_generation.acknowledge(3, 2, c, content(30 + c)).has_value());
  EXPECT_NE(root_of(other_generation), root);

  SentMap other_size = complete_map({1, 2});
  ASSERT_TRUE(other_size.add_region(3, 1, 2 * kChunk - 1).has_value());
  for (std::uint32_t c = 0; c < 2; ++c)
    ASSERT_TRUE(other_size.acknowledge(3, 1, c, content(30 + c)).has_value());
  EXPECT_NE(root_of(other_size), root);
}

// Computes the root by the definition in sent_map.h in one piece.
Fingerprint root_by_definition(const SentMap& map, const std::vector<std::uint64_t>& chunks_of_regions) {
  constexpr std::size_t kWords = kBlockBytes / sizeof(std::uint64_t);
  const auto fill_up = [](std::vector<std::uint64_t>& words) {
    words.resize((words.size() + kWords - 1) / kWords * kWords);
  };
  std::vector<std::uint64_t> words = {kChunk, chunks_of_regions.size()};
  for (std::size_t i = 0; i < chunks_of_regions.size(); ++i)
    words.insert(words.end(), {i + 1, 1, chunks_of_regions[i] * kChunk});
  fill_up(words);
  for (std::size_t i = 0; i < chunks_of_regions.size(); ++i) {
    for (std::uint32_t chunk = 0; chunk < chunks_of_regions[i]; ++chunk) {
      const auto held = map.find(i + 1, 1, chunk);
      EXPECT_TRUE(held.has_value());
      words.insert(words.end(), {held->lo, held->hi});
    }
    fill_up(words);
  }
  return fingerprint(*root_params(), std::as_bytes(std::span(words)));
}

TEST(SentMap, RootChangesWithEveryEntry) {
  const std::vector<std::uint64_t> chunks = {1, 255, 256, 257, 1000};  // a block has 256 entries
  SentMap map = make_map();
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    ASSERT_TRUE(map.add_region(i + 1, 1, chunks[i] * kChunk).has_value());
    for (std::uint32_t chunk = 0; chunk < chunks[i]; ++chunk)
      ASSERT_TRUE(map.acknowledge(i + 1, 1, chunk, content(i * 10000 + chunk)).has_value());
  }
  Fingerprint before = root_of(map);
  EXPECT_EQ(before, root_by_definition(map, chunks));
  std::mt19937 random(1);
  for (int turn = 0; turn < 200; ++turn) {
    const std::size_t region = random() % chunks.size();
    const auto chunk = static_cast<std::uint32_t>(random() % chunks[region]);
    ASSERT_TRUE(map.forget(region + 1, 1, chunk).has_value());
    if (turn % 3 == 0) map.refresh_root();
    ASSERT_TRUE(map.acknowledge(region + 1, 1, chunk, content(1000000 + turn)).has_value());
    if (turn % 3 == 1) map.refresh_root();
    const Fingerprint root = root_of(map);
    EXPECT_NE(root, before);
    EXPECT_EQ(root, root_by_definition(map, chunks));
    before = root;
  }
}

TEST(SentMap, RootDetectsExchangedChunks) {
  SentMap map = make_map();
  ASSERT_TRUE(map.add_region(1, 1, 600 * kChunk).has_value());
  for (std::uint32_t chunk = 0; chunk < 600; ++chunk)
    ASSERT_TRUE(map.acknowledge(1, 1, chunk, content(chunk)).has_value());
  const Fingerprint root = root_of(map);
  for (const std::uint32_t other : {1U, 256U, 599U}) {
    ASSERT_TRUE(map.acknowledge(1, 1, 0, content(other)).has_value());
    ASSERT_TRUE(map.acknowledge(1, 1, other, content(0)).has_value());
    EXPECT_NE(root_of(map), root);
    ASSERT_TRUE(map.acknowledge(1, 1, 0, content(0)).has_value());
    ASSERT_TRUE(map.acknowledge(1, 1, other, content(other)).has_value());
    EXPECT_EQ(root_of(map), root);
  }
}

TEST(SentMap, AnIncompleteTableHasNoRoot) {
  SentMap map = complete_map({1});
  ASSERT_TRUE(map.add_region(2, 1, kChunk).has_value());
  ASSERT_FALSE(map.root().has_value());
  EXPECT_EQ(map.root().error().code(), ErrorCode::kRefused);
}

}  // namespace
}  // namespace ckpt::track
