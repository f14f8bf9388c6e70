// SPDX-License-Identifier: Apache-2.0
// The Huffman decoder of our own gives what zstd gives, takes what zstd and huffman_writer.h pack, and leaves
// alone what is broken.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "libckpt/datapath/codec/huffman/huffman_frame.h"
#include "libckpt/datapath/codec/huffman/huffman_lengths.h"
#include "libckpt/datapath/codec/huffman/huffman_order.h"
#include "libckpt/datapath/codec/huffman/huffman_pairs.h"
#include "libckpt/datapath/codec/huffman/huffman_table.h"
#include "libckpt/datapath/codec/plane_packer.h"

namespace ckpt::codec {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kMaxBytes = 600'000;

Bytes bytes_of(std::initializer_list<int> values) {
  Bytes out;
  for (const int value : values) out.push_back(static_cast<std::byte>(value));
  return out;
}

// Symbol s comes `fall` times as often as s + 1 ... of `symbols`, which lie anywhere among the bytes.
Bytes make_plane(std::size_t bytes, double fall, std::size_t symbols, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int> values(256);
  std::iota(values.begin(), values.end(), 0);
  if (seed % 2 == 1) std::shuffle(values.begin(), values.end(), random);
  std::vector<double> weights;
  for (std::size_t s = 0; s < symbols; ++s) weights.push_back(std::pow(fall, -static_cast<double>(s)) + 1e-6);
  std::discrete_distribution<std::size_t> pick(weights.begin(), weights.end());
  Bytes plane(bytes);
  for (std::byte& b : plane) b = static_cast<std::byte>(values[pick(random)]);
  return plane;
}

class HuffmanTest : public testing::Test {
 protected:
  HuffmanTest() : packer_(PlanePacker::create(kMaxBytes).value()), frames_(HuffmanFrames::create().value()) {}
  void SetUp() override {
    if (!HuffmanFrames::supported()) GTEST_SKIP() << "this processor has no AVX2 and BMI2";
  }

  enum class By { kZstd, kOurs };
  static constexpr By kBoth[] = {By::kZstd, By::kOurs};
  Bytes pack(const Bytes& plane, By by = By::kZstd) {
    Bytes out(plane.size() * 2 + 1024);
    const auto size =
        by == By::kZstd ? packer_.pack_by_zstd(plane, false, out) : packer_.pack(plane, false, out);
    EXPECT_TRUE(size.has_value());
    // Memory of exactly that size: who reads behind it is seen.
    return {out.begin(), out.begin() + static_cast<std::ptrdiff_t>(size.value_or(0))};
  }
  // Whether it was taken. The plane lies between guards.
  bool decodes(const Bytes& frame, std::size_t bytes, Bytes& plane) {
    constexpr std::size_t kGuard = 64;
    Bytes memory(bytes + 2 * kGuard, std::byte{0xc3});
    const bool taken = frames_->decode(frame, std::span(memory).subspan(kGuard, bytes));
    for (std::size_t i = 0; i < kGuard; ++i) {
      EXPECT_EQ(memory[i], std::byte{0xc3});
      EXPECT_EQ(memory[memory.size() - 1 - i], std::byte{0xc3});
    }
    plane.assign(memory.begin() + kGuard, memory.end() - kGuard);
    return taken;
  }

  PlanePacker packer_;
  std::unique_ptr<HuffmanFrames> frames_;
};

TEST_F(HuffmanTest, PlanesOfEveryEntropyAndLengthComeBack) {
  int taken = 0, all = 0;
  std::uint64_t seed = 0;
  for (const double fall : {1.0, 1.02, 1.1, 1.3, 1.6, 2.0, 3.0, 8.0}) {
    for (const std::size_t symbols : {2, 3, 5, 17, 40, 129, 256}) {
      for (const std::size_t bytes : {300, 1024, 4095, 16384, 16387, 32768, 131072, 131073, 300'001}) {
        const Bytes plane = make_plane(bytes, fall, symbols, ++seed);
        for (const By by : kBoth) {
          const Bytes frame = pack(plane, by);
          Bytes back, other(bytes);
          ++all;
          ASSERT_TRUE(packer_.unpack_by_zstd(frame, other));
          ASSERT_EQ(other, plane);
          if (!decodes(frame, bytes, back)) continue;
          ++taken;
          ASSERT_EQ(back, plane) << symbols << " symbols, falling by " << fall << ", " << bytes << " bytes";
        }
      }
    }
  }
  // Left to zstd: what is a run of one byte, and the shortest planes, whose streams are short or single.
  EXPECT_GT(taken, all * 3 / 4) << "of " << all;
}

TEST_F(HuffmanTest, PlanesOfTrainingJobsAreDecoded) {
  for (const std::size_t bytes : {16384, 32768, 262144, 524288}) {
    for (const double fall : {1.05, 1.4, 2.2}) {
      const Bytes plane = make_plane(bytes, fall, 200, bytes);
      for (const By by : kBoth) {
        Bytes back;
        EXPECT_TRUE(decodes(pack(plane, by), bytes, back)) << bytes << " bytes, falling by " << fall;
        EXPECT_EQ(back, plane);
      }
    }
  }
}

TEST_F(HuffmanTest, BlocksAsTheyAreAndTablesOfTheBlockBeforeComeBack) {
  // Noise between what packs is stored; for the same again the table is kept.
  Bytes plane = make_plane(131072, 1.5, 30, 2);
  const Bytes noise = make_plane(131072, 1.0, 256, 3), same = plane;
  plane.insert(plane.end(), noise.begin(), noise.end());
  plane.insert(plane.end(), same.begin(), same.end());
  plane.insert(plane.end(), same.begin(), same.end());
  for (const By by : kBoth) {
    Bytes back;
    EXPECT_TRUE(decodes(pack(plane, by), plane.size(), back));
    EXPECT_EQ(back, plane);
  }
}

TEST_F(HuffmanTest, AnotherLengthIsRefused) {
  const Bytes plane = make_plane(16384, 1.5, 40, 1), frame = pack(plane);
  Bytes back;
  for (const std::size_t bytes : {0, 1, 4, 16380, 16383, 16385, 16388, 32768})
    EXPECT_FALSE(decodes(frame, bytes, back)) << bytes;
  for (std::size_t bytes = 0; bytes < frame.size(); bytes += bytes < 200 ? 1 : 23) {
    const Bytes cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(bytes));
    EXPECT_FALSE(decodes(cut, plane.size(), back)) << "cut to " << bytes;
  }
  Bytes longer = frame;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decodes(longer, plane.size(), back));
}

TEST_F(HuffmanTest, DamagedFramesAreRefusedOrDecodeAsZstd) {
  std::mt19937_64 random(11);
  int refused = 0, agreed = 0;
  for (int plane_number = 0; plane_number < 12; ++plane_number) {
    const Bytes plane =
        make_plane(2000 + random() % 20000, 1.02 + 0.2 * plane_number, 2 + random() % 255, random());
    const Bytes frame = pack(plane, kBoth[plane_number % 2]);
    for (int turn = 0; turn < 1500; ++turn) {
      Bytes input = frame;
      // Headers and tables are at the front.
      const std::size_t within = turn % 3 == 0 ? input.size() : std::min<std::size_t>(input.size(), 90);
      for (std::uint64_t flips = 1 + random() % 3; flips > 0; --flips)
        input[random() % within] ^= static_cast<std::byte>(1U << (random() % 8));
      Bytes ours, theirs(plane.size());
      if (!decodes(input, plane.size(), ours)) {
        ++refused;
        continue;
      }
      if (!packer_.unpack_by_zstd(input, theirs)) continue;
      ++agreed;
      ASSERT_EQ(ours, theirs);
    }
  }
  EXPECT_GT(refused, 4000);
  EXPECT_GT(agreed, 500);
}

TEST_F(HuffmanTest, NoiseIsNotTaken) {
  std::mt19937_64 random(12);
  Bytes back;
  for (int turn = 0; turn < 20000; ++turn) {
    Bytes input(random() % 300);
    for (std::byte& b : input) b = static_cast<std::byte>(random());
    // As if it were a frame of one block of Huffman literals.
    if (turn % 2 == 0 && input.size() > 12) {
      input[0] = std::byte{0};
      const std::size_t header = (input.size() - 5) << 3 | 2 << 1 | 1;
      std::memcpy(input.data() + 2, &header, 3);
      input[5] = static_cast<std::byte>(2 | 1 << 2 | (random() & 0xf0));
    }
    EXPECT_FALSE(decodes(input, 1 + random() % 2000, back));
  }
}

TEST(HuffmanLengthsTest, TheSpecificationsExample) {
  // RFC 8878 §4.2.1.1: weights 4 3 2 0 1, and the last symbol's follows.
  const Bytes description = bytes_of({127 + 5, 0x43, 0x20, 0x10, 0xff});
  CodeLengths lengths;
  ASSERT_EQ(read_code_lengths(description, lengths), 4U);
  const std::vector<int> expected{1, 2, 3, 0, 4, 4};
  for (std::size_t s = 0; s < kSymbols; ++s)
    EXPECT_EQ(lengths.bits[s], s < expected.size() ? expected[s] : 0) << s;
}

TEST(HuffmanLengthsTest, DescriptionsOfNoTreeAreRefused) {
  CodeLengths lengths;
  for (const Bytes& description :
       {bytes_of({}), bytes_of({0}), bytes_of({0, 0}), bytes_of({132, 0x43, 0x20}), bytes_of({129, 0x00}),
        bytes_of({128, 0xc0}), bytes_of({132, 0x41, 0x00, 0x00}), bytes_of({3, 0xff, 0xff, 0xff}),
        bytes_of({5, 0x00, 0x00, 0x00, 0x00, 0x00})})
    EXPECT_EQ(read_code_lengths(description, lengths), 0U);
}

// A tree of its own for each turn, of no shorter codes than that: leaves are split, the deeper ones more
// often the higher the turn.
CodeLengths make_lengths(int turn, unsigned min_bits, std::mt19937_64& random) {
  std::vector<unsigned> leaves(std::size_t{1} << min_bits, min_bits);
  const std::size_t room = kSymbols - leaves.size();
  const std::size_t wanted =
      leaves.size() + random() % (1 + (turn % 2 == 0 ? room : std::min<std::size_t>(room, 11)));
  for (int tries = 0; leaves.size() < wanted && tries < 5000; ++tries) {
    unsigned& leaf = leaves[turn % 3 == 0 ? leaves.size() - 1 : random() % leaves.size()];
    if (leaf == kMaxCodeBits) continue;
    leaves.push_back(++leaf);
  }
  CodeLengths lengths{};
  std::vector<std::size_t> symbols(kSymbols);
  std::iota(symbols.begin(), symbols.end(), 0);
  std::shuffle(symbols.begin(), symbols.end(), random);
  for (std::size_t i = 0; i < leaves.size(); ++i)
    lengths.bits[symbols[i]] = static_cast<std::uint8_t>(leaves[i]);
  return lengths;
}

CodeOrder order_of(const CodeLengths& lengths) {
  CodeOrder order;
  sort_codes(lengths, order);
  return order;
}

// The first symbol of so many bits, plainly: the longest codes first, those of a length by their value.
std::vector<std::uint8_t> first_symbols(const CodeLengths& lengths, unsigned index_bits) {
  std::vector<std::uint8_t> first;
  for (unsigned bits = kMaxCodeBits; bits > 0; --bits)
    for (std::size_t s = 0; s < kSymbols; ++s)
      if (lengths.bits[s] == bits)
        first.insert(first.end(), std::size_t{1} << (index_bits - bits), static_cast<std::uint8_t>(s));
  return first;
}

// Every entry holds the symbols that come of its index, and no more bits than that has; as many symbols as
// fit, if `whole`.
template <class Table>
void check_entries(const Table& table, const CodeLengths& lengths, bool whole) {
  const auto first = first_symbols(lengths, Table::kIndexBits);
  ASSERT_EQ(first.size(), std::size_t{1} << Table::kIndexBits);
  for (std::size_t index = 0; index < first.size(); ++index) {
    const std::uint64_t entry = table.entries()[index];
    const unsigned count = entry >> (8 * Table::kMaxSymbols) & 0xff;
    const auto bits = static_cast<unsigned>(entry >> (8 * Table::kMaxSymbols + 8));
    ASSERT_GE(count, 1U);
    ASSERT_LE(count, Table::kMaxSymbols);
    std::size_t left = index;
    unsigned used = 0;
    for (unsigned i = 0; i < count; ++i) {
      const std::uint8_t symbol = first[left];
      ASSERT_EQ(entry >> (8 * i) & 0xff, symbol) << "symbol " << i << " of entry " << index;
      used += table.bits_of(symbol);
      left = left << table.bits_of(symbol) & (first.size() - 1);
    }
    ASSERT_EQ(used, bits);
    ASSERT_LE(used, Table::kIndexBits);
    if (!whole || count == Table::kMaxSymbols) continue;
    ASSERT_GT(used + table.bits_of(first[left]), Table::kIndexBits) << index;
  }
}

TEST(HuffmanTableTest, EveryEntryHoldsTheSymbolsThatAreWholeInIt) {
  if (!HuffmanFrames::supported()) GTEST_SKIP() << "this processor has no AVX2 and BMI2";
  std::mt19937_64 random(13);
  const auto table = std::make_unique<HuffmanTable>();
  for (int turn = 0; turn < 60; ++turn) {
    const CodeLengths lengths = make_lengths(turn, 1, random);
    const CodeOrder order = order_of(lengths);
    table->build(lengths, order);
    // Codes of one bit make them too many.
    check_entries(*table, lengths, order.shortest > 1);
    if (HasFatalFailure()) return;
  }
}

TEST(HuffmanPairsTest, EveryEntryHoldsTheSymbolsThatAreWholeInIt) {
  if (!HuffmanFrames::supported()) GTEST_SKIP() << "this processor has no AVX2 and BMI2";
  std::mt19937_64 random(14);
  const auto pairs = std::make_unique<HuffmanPairs>();
  for (int turn = 0; turn < 60; ++turn) {
    const CodeLengths lengths =
        make_lengths(turn, HuffmanPairs::kMinBits + static_cast<unsigned>(turn) % 5, random);
    pairs->build(lengths, order_of(lengths));
    check_entries(*pairs, lengths, true);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace ckpt::codec
