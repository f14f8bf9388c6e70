// SPDX-License-Identifier: Apache-2.0
// The Huffman coder of our own, part by part: counts, codes, their description, streams, frames. Whatever the
// plane, what it writes decodes to it, by our decoder or by zstd, stays in its buffer, and is about as short
// as zstd's.
#include "libckpt/datapath/codec/huffman/huffman_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>
#include <random>
#include <vector>

#include "libckpt/datapath/codec/huffman/huffman_bits.h"
#include "libckpt/datapath/codec/huffman/huffman_code.h"
#include "libckpt/datapath/codec/huffman/huffman_description.h"
#include "libckpt/datapath/codec/plane_packer.h"

namespace ckpt::codec {
namespace {

using Bytes = std::vector<std::byte>;

Bytes noise(std::size_t bytes, std::size_t symbols, std::mt19937_64& random) {
  Bytes plane(bytes);
  for (std::byte& b : plane) b = static_cast<std::byte>(random() % symbols);
  return plane;
}
// Half of it symbol 0, a quarter symbol 1, ... and each of `symbols` once at least, anywhere.
Bytes skewed(std::size_t bytes, std::size_t symbols, std::mt19937_64& random) {
  Bytes plane(bytes);
  for (std::byte& b : plane)
    b = static_cast<std::byte>(std::min<int>(std::countr_zero(random()), static_cast<int>(symbols) - 1));
  for (std::size_t s = 0; s < std::min(symbols, bytes); ++s)
    plane[s * (bytes / symbols)] = static_cast<std::byte>(s);
  return plane;
}

SymbolCounts counts_of(const Bytes& plane) {
  SymbolCounts counts{};
  for (const std::byte b : plane) ++counts[std::to_integer<std::size_t>(b)];
  return counts;
}
std::uint64_t bits_of(const SymbolCounts& counts, const CodeLengths& lengths) {
  std::uint64_t bits = 0;
  for (std::size_t s = 0; s < kSymbols; ++s) bits += std::uint64_t{counts[s]} * lengths.bits[s];
  return bits;
}
// What Huffman's own tree takes, of any depth.
std::uint64_t min_bits(const SymbolCounts& counts) {
  std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> nodes;
  for (const std::uint32_t count : counts)
    if (count > 0) nodes.push(count);
  std::uint64_t bits = 0;
  while (nodes.size() > 1) {
    std::uint64_t sum = nodes.top();
    nodes.pop();
    sum += nodes.top();
    nodes.pop();
    nodes.push(sum);
    bits += sum;
  }
  return bits;
}

TEST(SymbolCountsTest, EveryLengthIsCounted) {
  std::mt19937_64 random(1);
  for (std::size_t bytes = 0; bytes < 200; ++bytes) {
    const Bytes plane = noise(bytes, 1 + random() % 256, random);
    SymbolCounts counts;
    count_symbols(plane, counts);
    ASSERT_EQ(counts, counts_of(plane)) << bytes;
  }
  for (const Bytes& plane : {Bytes(kMaxCounted, std::byte{0xff}), noise(kMaxCounted - 1, 256, random)}) {
    SymbolCounts counts;
    count_symbols(plane, counts);
    ASSERT_EQ(counts, counts_of(plane));
  }
}

// They fill a tree, none is too long, none of what occurs is left out, and what is rarer is not shorter.
void check_code(const SymbolCounts& counts, const CodeLengths& lengths) {
  unsigned share = 0;
  for (std::size_t s = 0; s < kSymbols; ++s) {
    ASSERT_EQ(counts[s] > 0, lengths.bits[s] > 0) << s;
    ASSERT_LE(lengths.bits[s], kMaxCodeBits);
    if (lengths.bits[s] > 0) share += 1U << (kMaxCodeBits - lengths.bits[s]);
    for (std::size_t other = 0; other < s; ++other)
      ASSERT_TRUE(counts[s] == 0 || counts[other] <= counts[s] || lengths.bits[other] <= lengths.bits[s]);
  }
  ASSERT_EQ(share, 1U << kMaxCodeBits);
}

TEST(CodeLengthsTest, TwoSymbolsTakeABitEach) {
  for (const std::uint32_t count : {1U, 7U, 130'000U}) {
    SymbolCounts counts{};
    counts[3] = 1;
    counts[255] = count;
    CodeLengths lengths;
    make_code_lengths(counts, lengths);
    check_code(counts, lengths);
    EXPECT_EQ(lengths.bits[3] + lengths.bits[255], 2);
  }
}

TEST(CodeLengthsTest, EqualSymbolsTakeEqualCodes) {
  for (const std::uint32_t count : {1U, 64U, 1024U}) {
    SymbolCounts counts;
    counts.fill(count);
    CodeLengths lengths;
    make_code_lengths(counts, lengths);
    EXPECT_TRUE(std::all_of(lengths.bits.begin(), lengths.bits.end(), [](auto bits) { return bits == 8; }));
  }
}

TEST(CodeLengthsTest, IsAsShortAsAnyWhereNothingIsTooLong) {
  std::mt19937_64 random(2);
  for (int turn = 0; turn < 300; ++turn) {
    SymbolCounts counts{};
    const std::size_t symbols = 2 + random() % 255;
    // None is so rare that its code would be too long.
    for (std::size_t s = 0; s < symbols; ++s)
      counts[(s * 167 + 5) % kSymbols] = 100 + random() % (turn % 2 == 0 ? 100 : 700);
    CodeLengths lengths;
    make_code_lengths(counts, lengths);
    check_code(counts, lengths);
    if (HasFatalFailure()) return;
    ASSERT_EQ(bits_of(counts, lengths), min_bits(counts));
  }
}

TEST(CodeLengthsTest, SkewedCountsStayWithinTheLongestCode) {
  std::mt19937_64 random(3);
  for (int turn = 0; turn < 300; ++turn) {
    SymbolCounts counts{};
    const std::size_t symbols = 13 + random() % 244;
    // Each is rarer than the one before, as in the deepest trees, down to one.
    double count = 100'000;
    const double fall = 1.1 + 0.01 * (turn % 100);
    for (std::size_t s = 0; s < symbols; ++s, count /= fall)
      counts[(s * 91 + 17) % kSymbols] = std::max<std::uint32_t>(1, static_cast<std::uint32_t>(count));
    const std::uint64_t all = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
    if (all > kMaxCounted) continue;
    CodeLengths lengths;
    make_code_lengths(counts, lengths);
    check_code(counts, lengths);
    if (HasFatalFailure()) return;
    // What the limit costs: at most each symbol's share of the codes, as if none had been rarer.
    const double share = static_cast<double>(symbols) / (1U << kMaxCodeBits);
    ASSERT_LE(
        static_cast<double>(bits_of(counts, lengths)),
        static_cast<double>(min_bits(counts)) - 2.0 * static_cast<double>(all) * std::log2(1 - share) + 100)
        << symbols << " symbols, falling by " << fall;
  }
}

// A tree of so many leaves, split where it likes.
CodeLengths make_lengths(std::size_t leaves, bool deep, std::mt19937_64& random) {
  std::vector<std::uint8_t> bits{1, 1};
  for (int tries = 0; bits.size() < leaves && tries < 5000; ++tries) {
    std::uint8_t& leaf = bits[deep ? bits.size() - 1 - random() % std::min<std::size_t>(bits.size(), 4)
                                   : random() % bits.size()];
    if (leaf < kMaxCodeBits) bits.push_back(++leaf);
  }
  std::vector<std::size_t> symbols(kSymbols);
  std::iota(symbols.begin(), symbols.end(), 0);
  if (random() % 2 == 0) std::shuffle(symbols.begin(), symbols.end(), random);
  CodeLengths lengths{};
  for (std::size_t i = 0; i < bits.size(); ++i) lengths.bits[symbols[i]] = bits[i];
  return lengths;
}

TEST(CodeDescriptionTest, DescriptionIsReadBack) {
  std::mt19937_64 random(4);
  int direct = 0, packed = 0, none = 0;
  for (int turn = 0; turn < 4000; ++turn) {
    const CodeLengths lengths = make_lengths(2 + random() % 255, turn % 2 == 0, random);
    CodeDescription description{};
    const std::size_t bytes = describe_code_lengths(lengths, description);
    ASSERT_LE(bytes, description.size());
    if (bytes == 0) {
      ++none;
      continue;
    }
    (std::to_integer<int>(description.front()) > 127 ? direct : packed) += 1;
    CodeLengths back{};
    ASSERT_EQ(read_code_lengths(std::span(description).first(bytes), back), bytes) << turn;
    ASSERT_EQ(back.bits, lengths.bits) << turn;
  }
  EXPECT_GT(packed, 2000);
  EXPECT_GT(direct, 10);
  EXPECT_EQ(none, 0);
}

TEST(CodeDescriptionTest, EqualCodesForAllBytesCannotBeDescribed) {
  CodeLengths lengths;
  lengths.bits.fill(8);
  CodeDescription description;
  EXPECT_EQ(describe_code_lengths(lengths, description), 0U);
}

TEST(WriteStreamTest, FastAndPlainWritersAgree) {
  std::mt19937_64 random(5);
  for (int turn = 0; turn < 1200; ++turn) {
    const CodeLengths lengths = make_lengths(2 + random() % 255, turn % 3 == 0, random);
    CodeTable table;
    make_code_table(lengths, table);
    std::vector<std::byte> symbols;
    for (std::size_t s = 0; s < kSymbols; ++s)
      if (lengths.bits[s] > 0) symbols.push_back(static_cast<std::byte>(s));
    Bytes run(turn < 400 ? static_cast<std::size_t>(turn) : random() % 5000);
    for (std::byte& b : run) b = symbols[random() % symbols.size()];
    std::uint64_t bits = 1;
    for (const std::byte b : run) bits += lengths.bits[std::to_integer<std::size_t>(b)];
    const std::size_t bytes = (bits + 7) / 8;
    constexpr std::byte kGuard{0x5e};
    Bytes fast(bytes + kStreamSlack + 16, kGuard), plain = fast;
    ASSERT_EQ(write_stream()(table, run, fast.data()), bytes);
    ASSERT_EQ(write_stream_plainly()(table, run, plain.data()), bytes);
    ASSERT_TRUE(std::equal(fast.begin(), fast.begin() + static_cast<std::ptrdiff_t>(bytes), plain.begin()))
        << turn;
    for (const Bytes& out : {fast, plain})
      ASSERT_EQ(std::count(out.end() - 16, out.end(), kGuard), 16) << turn;
  }
}

class HuffmanWriterTest : public testing::Test {
 protected:
  // The frame's length; it decodes to the plane, by zstd and by our decoder.
  std::size_t check(const Bytes& plane) {
    Bytes out(plane.size() + 64), back(plane.size());
    const auto size = writer_->pack(plane, out);
    EXPECT_TRUE(size.has_value());
    if (!size) return 0;
    const std::span<const std::byte> frame = std::span(out).first(*size);
    EXPECT_TRUE(packer_.unpack_by_zstd(frame, back));
    EXPECT_EQ(back, plane);
    std::fill(back.begin(), back.end(), std::byte{0x77});
    EXPECT_TRUE(packer_.unpack(frame, back));
    EXPECT_EQ(back, plane);
    return *size;
  }

  const std::unique_ptr<HuffmanWriter> writer_ = HuffmanWriter::create().value();
  PlanePacker packer_ = PlanePacker::create(1 << 20).value();
};

TEST_F(HuffmanWriterTest, PlanesOfEveryKindAndLengthComeBack) {
  std::mt19937_64 random(6);
  std::vector<std::size_t> lengths{2048,   4096,   16383,  16384,         16385,  32768,
                                   131071, 131072, 131073, 131072 + 1023, 262144, 300'007};
  for (std::size_t bytes = HuffmanWriter::kMinBytes; bytes < HuffmanWriter::kMinBytes + 20; ++bytes)
    lengths.push_back(bytes);
  for (const std::size_t bytes : lengths) {
    check(Bytes(bytes, std::byte{0x81}));  // one symbol
    Bytes one_other(bytes, std::byte{7});
    one_other[bytes / 2] = std::byte{200};
    check(one_other);
    for (const std::size_t symbols : {2, 3, 40, 129, 255, 256}) {
      check(noise(bytes, symbols, random));
      check(skewed(bytes, symbols, random));
    }
    if (HasFailure()) FAIL() << bytes << " bytes";
  }
}

TEST_F(HuffmanWriterTest, IsAboutAsShortAsZstd) {
  std::mt19937_64 random(7);
  for (const std::size_t bytes : {4096, 16384, 32768, 262144}) {
    for (const std::size_t symbols : {2, 17, 60, 140, 230, 256}) {
      for (const Bytes& plane : {noise(bytes, symbols, random), skewed(bytes, symbols, random)}) {
        Bytes out(bytes + 1024);
        const double theirs = static_cast<double>(packer_.pack_by_zstd(plane, false, out).value());
        EXPECT_LE(static_cast<double>(check(plane)), theirs * 1.01 + 8)
            << symbols << " symbols, " << bytes << " bytes";
      }
    }
  }
}

TEST_F(HuffmanWriterTest, RepeatedPlaneReusesTheCode) {
  std::mt19937_64 random(8);
  const Bytes block = skewed(131072, 200, random);
  Bytes four;
  for (int i = 0; i < 4; ++i) four.insert(four.end(), block.begin(), block.end());
  const std::size_t once = check(block), again = check(four);
  CodeLengths lengths;
  CodeDescription description;
  make_code_lengths(counts_of(block), lengths);
  // Of each block but the first the description is saved; of the frame there is one.
  EXPECT_EQ(4 * (once - 2) - again + 2, 3 * describe_code_lengths(lengths, description));
}

TEST_F(HuffmanWriterTest, ShortBufferIsRefusedOrNotExceeded) {
  std::mt19937_64 random(9);
  for (const Bytes& plane : {skewed(5000, 100, random), noise(5000, 256, random), Bytes(5000, std::byte{1}),
                             skewed(131072 + 3000, 150, random)}) {
    const std::size_t whole = check(plane);
    constexpr std::byte kGuard{0xa1};
    int refused = 0, taken = 0;
    for (std::size_t room = whole > 600 ? whole - 600 : 0; room < whole + 40; ++room) {
      Bytes memory(room + 32, kGuard);
      const auto size = writer_->pack(plane, std::span(memory).first(room));
      ASSERT_EQ(std::count(memory.end() - 32, memory.end(), kGuard), 32) << room;
      (size ? taken : refused) += 1;
      if (!size) continue;
      ASSERT_LE(*size, room);
      Bytes back(plane.size());
      ASSERT_TRUE(packer_.unpack_by_zstd(std::span(memory).first(*size), back));
      ASSERT_EQ(back, plane);
    }
    EXPECT_GT(refused, 0);
    EXPECT_GT(taken, 0);
  }
}

TEST_F(HuffmanWriterTest, ShortPlanesAreLeft) {
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{100}, HuffmanWriter::kMinBytes - 1}) {
    Bytes out(4096);
    EXPECT_FALSE(writer_->pack(Bytes(bytes, std::byte{3}), out).has_value());
  }
}

}  // namespace
}  // namespace ckpt::codec
