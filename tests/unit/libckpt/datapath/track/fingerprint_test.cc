// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/track/fingerprint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <set>

#include "libckpt/datapath/track/fingerprint_host.h"
#include "tests/unit/libckpt/datapath/track/message.h"

namespace ckpt::track {

bool operator<(const Fingerprint& a, const Fingerprint& b) {
  return std::tie(a.lo, a.hi) < std::tie(b.lo, b.hi);
}

namespace {

const FingerprintParams& params() {
  static const auto expanded = FingerprintParams::expand(test_key(), FingerprintPurpose::kChunks);
  return *expanded;
}

TEST(Fingerprint, EachImplementationMatchesTheTestVectors) {
  for (const Vector& vector : kVectors) {
    const auto expanded =
        FingerprintParams::expand(test_key(), static_cast<FingerprintPurpose>(vector.purpose));
    const std::vector<std::byte> data = test_message(vector.length);
    for (const auto& implementation : fingerprint_implementations()) {
      const Fingerprint f = implementation.function(expanded->tables(), data.data(), data.size());
      EXPECT_EQ(f.lo, vector.lo) << implementation.name << " length " << vector.length;
      EXPECT_EQ(f.hi, vector.hi) << implementation.name << " length " << vector.length;
    }
    EXPECT_EQ(fingerprint(*expanded, data), (Fingerprint{vector.lo, vector.hi}));
  }
}

std::vector<std::byte> random_message(std::size_t length) {
  std::mt19937_64 random(length);
  std::vector<std::byte> data(length + 8);
  for (std::size_t i = 0; i < length; i += 8) {
    const std::uint64_t word = random();
    std::memcpy(data.data() + i, &word, 8);
  }
  data.resize(length);
  return data;
}

struct Marked {
  Fingerprint fingerprint;
  std::vector<std::uint32_t> marks;
  friend bool operator==(const Marked&, const Marked&) = default;
};

// Computes the fingerprint by its definition, block after block, without any optimization.
Marked by_definition(const FingerprintTables& tables, std::span<const std::byte> data) {
  Marked out;
  Chain chain;
  for (std::size_t at = 0; at < data.size(); at += kBlockBytes) {
    unsigned char block[kBlockBytes] = {};
    std::memcpy(block, data.data() + at, std::min<std::size_t>(kBlockBytes, data.size() - at));
    const BlockSums sums = nh_block_scalar(tables, block);
    chain.add(tables, sums);
    out.marks.push_back(static_cast<std::uint32_t>(compress(tables, 0, sums)));
  }
  out.fingerprint = chain.finish(tables, data.size());
  return out;
}

Marked by(const FingerprintImplementation& implementation, const FingerprintTables& tables,
          std::span<const std::byte> data) {
  Marked out;
  out.marks.resize(mark_count(data.size()));
  out.fingerprint = implementation.function(tables, data.data(), data.size(), out.marks.data());
  return out;
}

TEST(Fingerprint, ImplementationsMatchTheDefinitionForEveryLengthAndAlignment) {
  const std::vector<std::byte> data = random_message(21 * kBlockBytes + 64);
  std::vector<std::size_t> lengths = {data.size() - 33};
  for (std::size_t length = 0; length <= 2 * kBlockBytes + 40; length += 1 + length / 7)
    lengths.push_back(length);
  for (std::size_t blocks = 1; blocks <= 21; ++blocks) {
    for (const std::size_t length :
         {blocks * kBlockBytes - 1, blocks * kBlockBytes, blocks * kBlockBytes + 7})
      lengths.push_back(length);
  }
  for (const std::size_t length : lengths) {
    const auto message = std::span(data).subspan(length % 33, length);
    const Marked expected = by_definition(params().tables(), message);
    for (const auto& implementation : fingerprint_implementations()) {
      EXPECT_EQ(by(implementation, params().tables(), message), expected)
          << implementation.name << " length " << length;
      EXPECT_EQ(implementation.function(params().tables(), message.data(), length), expected.fingerprint)
          << implementation.name << " without marks, length " << length;
    }
  }
}

TEST(Fingerprint, ImplementationsMatchTheDefinitionBeyondTheTableOfPowers) {
  // Stretches have at most kMaxPower blocks. This message takes two walks, and leaves three blocks and a
  // partial block.
  const std::vector<std::byte> data =
      random_message((kStretches * (kMaxPower + std::size_t{5}) + 3) * kBlockBytes + 999);
  const Marked expected = by_definition(params().tables(), data);
  for (const auto& implementation : fingerprint_implementations())
    EXPECT_EQ(by(implementation, params().tables(), data), expected) << implementation.name;
}

TEST(Fingerprint, PrefetchHintDoesNotChangeTheFingerprint) {
  const std::vector<std::byte> data = random_message(8 * kBlockBytes);
  const Fingerprint expected = fingerprint(params(), data);
  const void* unreadable = reinterpret_cast<const void*>(std::uintptr_t{64});
  for (const void* next : {unreadable, static_cast<const void*>(data.data())}) {
    for (const auto& implementation : fingerprint_implementations())
      EXPECT_EQ(implementation.whole(params().tables(), data.data(), data.size(), nullptr, next), expected);
  }
}

TEST(Fingerprint, CarriesOfExtremeWordsMatchTheDefinition) {
  // With all bits set, every sum of a message word and a key word wraps, and every product has the full
  // width.
  const std::vector<std::byte> ones(9 * kBlockBytes, std::byte{0xff});
  const Marked expected = by_definition(params().tables(), ones);
  EXPECT_LT(expected.fingerprint.lo, kPrime);
  EXPECT_LT(expected.fingerprint.hi, kPrime);
  for (const auto& implementation : fingerprint_implementations())
    EXPECT_EQ(by(implementation, params().tables(), ones), expected) << implementation.name;
}

TEST(Fingerprint, CarriesOfExtremeKeysMatchTheDefinition) {
  const std::vector<std::byte> zeroes(9 * kBlockBytes);
  const std::vector<std::byte> ones(9 * kBlockBytes, std::byte{0xff});
  for (const std::uint64_t element : {kPrime - 1, std::uint64_t{1} << 52, (std::uint64_t{1} << 52) - 1}) {
    for (const std::uint32_t word : {0xffffffffu, 0x80000000u, 1u, 0u}) {
      auto tables = std::make_unique<FingerprintTables>();
      std::fill(std::begin(tables->nh), std::end(tables->nh), word);
      for (int a = 0; a < 2; ++a) {
        std::fill(std::begin(tables->mix[a]), std::end(tables->mix[a]), element);
        tables->point[a] = element;
        tables->power[a][0] = 1;
        for (std::uint32_t e = 1; e <= kMaxPower; ++e)
          tables->power[a][e] = multiply_mod(tables->power[a][e - 1], element);
      }
      for (const auto& message : {zeroes, ones}) {
        const Marked expected = by_definition(*tables, message);
        for (const auto& implementation : fingerprint_implementations())
          EXPECT_EQ(by(implementation, *tables, message), expected) << implementation.name << " " << word;
      }
    }
  }
}

TEST(Marks, ChangedBlocksHaveDifferentMarks) {
  std::vector<std::byte> data = random_message(37 * kBlockBytes + 5);
  std::vector<std::uint32_t> before(mark_count(data.size())), after(before.size());
  ASSERT_EQ(before.size(), 38u);
  const Fingerprint whole = fingerprint(params(), data, before);
  EXPECT_EQ(whole, fingerprint(params(), data));
  EXPECT_EQ(std::set<std::uint32_t>(before.begin(), before.end()).size(), before.size());
  for (const std::size_t block : {0UL, 8UL, 9UL, 17UL, 35UL, 36UL, 37UL}) {
    data[block * kBlockBytes + 3] ^= std::byte{0x10};
    EXPECT_NE(fingerprint(params(), data, after), whole);
    for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i] != after[i], i == block) << block;
    data[block * kBlockBytes + 3] ^= std::byte{0x10};
  }
}

TEST(Marks, MarksDependOnlyOnTheBlockAndTheKey) {
  std::vector<std::byte> data(6 * kBlockBytes + 10);
  std::vector<std::uint32_t> marks(mark_count(data.size()));
  EXPECT_EQ(fingerprint(params(), data, marks), fingerprint_of_zeroes(params(), data.size()));
  EXPECT_EQ(marks, std::vector<std::uint32_t>(marks.size(), mark_of_zeroes(params())));
  FingerprintKey key = test_key();
  key[0] ^= std::byte{1};
  EXPECT_NE(mark_of_zeroes(*FingerprintParams::expand(key, FingerprintPurpose::kChunks)),
            mark_of_zeroes(params()));
}

TEST(Marks, EachBlockHasOneMark) {
  EXPECT_EQ(mark_count(0), 0u);
  EXPECT_EQ(mark_count(1), 1u);
  EXPECT_EQ(mark_count(kBlockBytes), 1u);
  EXPECT_EQ(mark_count(kBlockBytes + 1), 2u);
  EXPECT_EQ(mark_count(~std::uint64_t{0}), std::uint64_t{1} << 52);
}

TEST(Fingerprint, FingerprintDependsOnTheLength) {
  // Padding also adds zero bytes at the end, so only the length distinguishes these messages.
  std::set<Fingerprint> seen;
  std::vector<std::byte> data = test_message(100);
  data.resize(2 * kBlockBytes + 8);
  for (std::size_t length = 100; length <= data.size(); length += 4)
    EXPECT_TRUE(seen.insert(fingerprint(params(), std::span(data).first(length))).second) << length;
}

TEST(Fingerprint, FingerprintOfZeroesNeedsNoMemory) {
  const std::vector<std::byte> zeroes(300'000);
  std::set<Fingerprint> seen;
  for (const std::size_t length : {1UL, 16UL, 4096UL, 4097UL, 65536UL, 131072UL, 300'000UL}) {
    const Fingerprint f = fingerprint(params(), std::span(zeroes).first(length));
    EXPECT_EQ(fingerprint_of_zeroes(params(), length), f) << length;
    EXPECT_TRUE(seen.insert(f).second) << length;
  }
}

TEST(Fingerprint, EveryFlippedBitChangesTheFingerprint) {
  std::vector<std::byte> data = test_message(kBlockBytes + 100);
  std::set<Fingerprint> seen{fingerprint(params(), data)};
  for (std::size_t bit = 0; bit < data.size() * 8; bit += 5) {
    data[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_TRUE(seen.insert(fingerprint(params(), data)).second) << bit;
    data[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  }
}

TEST(Fingerprint, ExchangedBlocksChangeTheFingerprint) {
  std::vector<std::byte> data = test_message(4 * kBlockBytes);
  const Fingerprint before = fingerprint(params(), data);
  std::swap_ranges(data.begin(), data.begin() + kBlockBytes, data.begin() + 2 * kBlockBytes);
  EXPECT_NE(fingerprint(params(), data), before);
}

TEST(Fingerprint, AnotherKeyGivesADifferentFingerprint) {
  const std::vector<std::byte> data = test_message(10'000);
  FingerprintKey key = test_key();
  key[31] ^= std::byte{1};
  const auto other = FingerprintParams::expand(key, FingerprintPurpose::kChunks);
  EXPECT_NE(fingerprint(*other, data), fingerprint(params(), data));
}

TEST(FingerprintCore, WideReductionIsExact) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 100'000; ++i) {
    const std::uint64_t a = random() & kPrime, b = random() & kPrime;
    EXPECT_EQ(multiply_mod(a, b), static_cast<std::uint64_t>(static_cast<unsigned __int128>(a) * b % kPrime));
  }
  EXPECT_EQ(reduce_wide(kPrime), 0u);
  EXPECT_EQ(reduce_wide(static_cast<unsigned __int128>(kPrime) * kPrime), 0u);
  const unsigned __int128 largest = (static_cast<unsigned __int128>(1) << 122) - 1;
  EXPECT_EQ(reduce_wide(largest), static_cast<std::uint64_t>(largest % kPrime));
}

TEST(FingerprintCore, BlockSumByPowersEqualsTheChainedSum) {
  // The device adds blocks in any order, weighted by powers. The host chains the blocks.
  const std::vector<std::byte> data = test_message(7 * kBlockBytes);
  const FingerprintTables& tables = params().tables();
  constexpr std::uint32_t kBlocks = 7;
  std::uint64_t h[2];
  for (int a = 0; a < 2; ++a) {
    h[a] = add_mod(tables.power[a][kBlocks + 1], data.size());
    for (std::uint32_t b = kBlocks; b-- > 0;) {
      BlockSums sums;
      for (std::uint32_t word = 0; word < kBlockWords; word += 2) {
        std::uint32_t pair[2];
        std::memcpy(pair, data.data() + b * kBlockBytes + word * 4, sizeof pair);
        add_pair(tables.nh + word, pair[0], pair[1], sums);
      }
      h[a] = add_mod(h[a], multiply_mod(compress(tables, a, sums), tables.power[a][kBlocks - b]));
    }
  }
  EXPECT_EQ((Fingerprint{h[0], h[1]}), fingerprint(params(), data));
}

}  // namespace
}  // namespace ckpt::track
