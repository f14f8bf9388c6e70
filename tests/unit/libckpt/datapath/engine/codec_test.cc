// SPDX-License-Identifier: Apache-2.0
// Encodings between sender and receiver. Every mode leaves the target equal to the source, and sends fewer
// bytes if less has changed.
#include <gtest/gtest.h>

#include "libckpt/datapath/engine/source/history.h"
#include "tests/unit/libckpt/datapath/engine/engine_pair.h"

namespace ckpt::engine {
namespace {

using codec::CodecMode;
using test::EnginePair;
using test::kKiB;
using test::kMiB;
using test::must;

constexpr std::uint64_t kChunk = 64 * kKiB;

struct Mode {
  const char* name;
  CodecMode codec;
  std::uint64_t shadow_memory;
};

class Codecs : public testing::TestWithParam<Mode> {};

TEST_P(Codecs, RoundsUnderRandomWritersEndWithEqualMemory) {
  for (const auto& [chunk, same_host] : {std::pair{64 * kKiB, false}, {64 * kKiB, true}, {2 * kMiB, false}}) {
    SCOPED_TRACE(same_host ? "near" : "far");
    EnginePair pair({.sizes = {5 * kMiB + 4096 + 16, 48, 64 * kKiB + 2},
                     .chunk_bytes = chunk,
                     .codec = GetParam().codec,
                     .shadow_memory = GetParam().shadow_memory,
                     .same_host = same_host});
    pair.announce();
    pair.source(1).write(0, test::random_floats(5 * kMiB, 1));
    test::Writer writer(pair, {1, 2, 3}, 5);
    for (int round = 0; round < 5; ++round) {
      must(pair.sender().run_round());
      writer.wait_for_writes(30);
    }
    writer.stop();
    pair.switch_over();
    EXPECT_EQ(pair.differences(), 0u);
    EXPECT_EQ(pair.mismatches(), 0u);
  }
}

TEST_P(Codecs, ARegionAddedAgainStartsWithoutHistory) {
  EnginePair pair(
      {.sizes = {1 * kMiB}, .codec = GetParam().codec, .shadow_memory = GetParam().shadow_memory});
  pair.announce();
  pair.source().write(0, test::random_floats(1 * kMiB, 1));
  must(pair.sender().run_round());
  pair.drop(1);
  pair.free_buffers(1);
  pair.add_buffers(1, 2, 2 * kMiB);
  pair.announce();
  pair.source().write(0, test::random_floats(2 * kMiB, 1));
  must(pair.sender().run_round());
  pair.source().fill(3 * kChunk, 100, 7);
  pair.switch_over();
  EXPECT_EQ(pair.differences(), 0u);
  EXPECT_EQ(pair.mismatches(), 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Modes, Codecs,
    testing::Values(Mode{"raw", CodecMode::kRaw, 8 * kMiB}, Mode{"planes", CodecMode::kPlanes, 0},
                    Mode{"difference", CodecMode::kDifference, 16 * kMiB},
                    Mode{"difference_in_little_memory", CodecMode::kDifference, 2 * kMiB},
                    Mode{"difference_without_memory", CodecMode::kDifference, 0},
                    Mode{"automatic", CodecMode::kAuto, 0},
                    Mode{"automatic_with_shadow", CodecMode::kAuto, 8 * kMiB}),
    [](const auto& info) { return info.param.name; });

// Returns the wire bytes of the second round, after the last bits of some floats have changed.
std::uint64_t second_round(CodecMode codec, std::uint64_t shadow_memory) {
  constexpr std::uint64_t kBytes = 4 * kMiB;
  EnginePair pair({.sizes = {kBytes}, .codec = codec, .shadow_memory = shadow_memory});
  pair.announce();
  auto bytes = test::random_floats(kBytes, 1);
  pair.source().write(0, bytes);
  must(pair.sender().run_round());
  for (std::size_t i = 0; i < kBytes; i += 4) bytes[i] ^= std::byte{1};
  pair.source().write(0, bytes);
  const RoundReport report = must(pair.sender().run_round());
  EXPECT_EQ(report.sent_bytes, kBytes);
  EXPECT_EQ(pair.mismatches(), 0u);
  EXPECT_EQ(pair.differences(), 0u);
  return report.wire_bytes;
}

TEST(CodecSizes, DifferencesCompressFloatsBetterThanPlanes) {
  const std::uint64_t raw = second_round(CodecMode::kRaw, 4 * kMiB);
  const std::uint64_t planes = second_round(CodecMode::kPlanes, 4 * kMiB);
  const std::uint64_t difference = second_round(CodecMode::kDifference, 4 * kMiB);
  const std::uint64_t half = second_round(CodecMode::kDifference, 2 * kMiB);
  EXPECT_GE(raw, 4 * kMiB);
  EXPECT_LT(planes, raw * 9 / 10);
  EXPECT_LT(difference, planes / 2);
  EXPECT_LT(half, planes) << "half of the chunks have a shadow";
  EXPECT_GT(half, difference);
}

TEST(CodecSizes, RandomBytesAreSentUnencoded) {
  EnginePair pair({.sizes = {4 * kMiB}, .codec = CodecMode::kPlanes});
  pair.announce();
  pair.source().write(0, test::random_bytes(4 * kMiB, 1));
  const RoundReport report = must(pair.sender().run_round());
  EXPECT_LT(report.wire_bytes, 4 * kMiB + 16 * kKiB);
  EXPECT_EQ(pair.differences(), 0u);
}

TEST(CodecSizes, OnlyChangedBlocksOfASlightlyChangedChunkAreSent) {
  EnginePair pair({.sizes = {4 * kMiB + 100}});
  pair.announce();
  pair.source().write(0, test::random_bytes(4 * kMiB + 100, 1));
  must(pair.sender().run_round());
  for (std::uint64_t at = 100; at < 4 * kMiB; at += kChunk) pair.source().fill(at, 1, 0x77);
  pair.source().fill(4 * kMiB + 50, 10, 0x77);  // the last chunk is one short block
  const RoundReport report = must(pair.sender().run_round());
  EXPECT_EQ(report.sent_bytes, 4 * kMiB + 100);
  EXPECT_LT(report.wire_bytes, 65 * 5 * kKiB);
  EXPECT_EQ(pair.mismatches(), 0u);
  EXPECT_EQ(pair.differences(), 0u);
  pair.switch_over();
  EXPECT_EQ(pair.differences(), 0u);
}

TEST(CodecSizes, AZeroChunkIsNotUsedAsABaseVersion) {
  for (const CodecMode codec : {CodecMode::kAuto, CodecMode::kDifference}) {
    EnginePair pair({.sizes = {1 * kMiB}, .codec = codec, .shadow_memory = 1 * kMiB});
    pair.announce();
    const auto bytes = test::random_floats(1 * kMiB, 1);
    pair.source().write(0, bytes);
    must(pair.sender().run_round());
    pair.source().fill(2 * kChunk, 3 * kChunk, 0);
    must(pair.sender().run_round());
    pair.source().write(0, bytes);
    must(pair.sender().run_round());
    EXPECT_EQ(pair.mismatches(), 0u);
    EXPECT_EQ(pair.differences(), 0u);
  }
}

std::vector<std::byte> version(std::size_t bytes, int value) {
  return std::vector<std::byte>(bytes, static_cast<std::byte>(value));
}

TEST(ShadowStore, StoredVersionsAreFoundUntilForgotten) {
  auto store = must(ShadowStore::create(4 * kChunk, kChunk));
  ChunkHistory history(10 * kChunk, kChunk, false, true);
  EXPECT_TRUE(store->find(history, 3, kChunk, 1).empty());
  store->store(history, 3, version(kChunk, 1), 1);
  store->store(history, 4, version(100, 2), 1);
  ASSERT_EQ(store->find(history, 3, kChunk, 2).size(), kChunk);
  EXPECT_EQ(store->find(history, 3, kChunk, 2)[99], std::byte{1});
  EXPECT_EQ(store->find(history, 4, 100, 2)[99], std::byte{2});
  ShadowStore::forget(history, 3);
  EXPECT_TRUE(store->find(history, 3, kChunk, 3).empty());
  EXPECT_FALSE(store->find(history, 4, 100, 3).empty());
}

TEST(ShadowStore, PartOfTheStoreIsKeptIfEveryRoundSendsAllChunks) {
  auto store = must(ShadowStore::create(4 * kChunk, kChunk));
  ChunkHistory history(10 * kChunk, kChunk, false, true);
  for (std::uint32_t round = 1; round < 6; ++round) {
    std::uint32_t hits = 0;
    for (std::uint32_t chunk = 0; chunk < 10; ++chunk) {
      hits += store->find(history, chunk, kChunk, round).empty() ? 0 : 1;
      store->store(history, chunk, version(kChunk, 1), round);
    }
    EXPECT_EQ(hits, round == 1 ? 0u : 4u);
  }
}

TEST(ShadowStore, ColdChunkIsReplacedByAHotChunk) {
  auto store = must(ShadowStore::create(2 * kChunk, kChunk));
  ChunkHistory history(10 * kChunk, kChunk, false, true);
  for (std::uint32_t chunk = 0; chunk < 10; ++chunk) store->store(history, chunk, version(kChunk, 1), 1);
  EXPECT_FALSE(store->find(history, 0, kChunk, 1).empty());
  for (std::uint32_t round = 2; round < 7; ++round) store->store(history, 7, version(kChunk, 9), round);
  ASSERT_FALSE(store->find(history, 7, kChunk, 7).empty());
  EXPECT_EQ(store->find(history, 7, kChunk, 7)[0], std::byte{9});
}

TEST(ChunkHistory, MarksOfAcknowledgedChunksAreKept) {
  ChunkHistory history(2 * kChunk + 5000, kChunk, true, false);
  EXPECT_TRUE(history.marks(1).empty());
  std::vector<std::uint32_t> marks(16, 5);
  history.hold(1, marks);
  ASSERT_EQ(history.marks(1).size(), 16u);
  EXPECT_EQ(history.marks(1)[15], 5u);
  history.hold(2, std::span(marks).first(2));
  EXPECT_EQ(history.marks(2).size(), 2u) << "the last chunk is short";
  history.forget(1);
  EXPECT_TRUE(history.marks(1).empty());
  EXPECT_TRUE(ChunkHistory().marks(0).empty());
}

}  // namespace
}  // namespace ckpt::engine
