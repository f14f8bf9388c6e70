// SPDX-License-Identifier: Apache-2.0
#include "libckpt/track/fingerprint.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>

#include "tests/unit/track/message.h"

namespace ckpt::track {

bool operator<(const Fingerprint& a, const Fingerprint& b) {
  return std::tie(a.lo, a.hi) < std::tie(b.lo, b.hi);
}

namespace {

const FingerprintParams& params() {
  static const auto expanded = FingerprintParams::expand(test_key(), FingerprintPurpose::kChunks);
  return *expanded;
}

TEST(Fingerprint, EqualsTheVectorsInEachImplementation) {
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

TEST(Fingerprint, ImplementationsAgreeOnEveryLengthAndAlignment) {
  std::mt19937_64 random(1);
  std::vector<std::byte> data(3 * kBlockBytes + 64);
  for (std::byte& b : data) b = static_cast<std::byte>(random());
  for (std::size_t length = 0; length <= 2 * kBlockBytes + 40; length += 1 + length / 7) {
    const std::byte* at = data.data() + length % 33;
    const Fingerprint expected = fingerprint_implementations()[0].function(params().tables(), at, length);
    for (const auto& implementation : fingerprint_implementations())
      EXPECT_EQ(implementation.function(params().tables(), at, length), expected) << length;
  }
}

TEST(Fingerprint, ExtremeWordsCarryAsTheDefinitionSays) {
  // All ones: every sum of a message word and a key word wraps, every product is of full width.
  const std::vector<std::byte> ones(5 * kBlockBytes, std::byte{0xff});
  const Fingerprint expected =
      fingerprint_implementations()[0].function(params().tables(), ones.data(), ones.size());
  EXPECT_EQ(fingerprint(params(), ones), expected);
  EXPECT_LT(expected.lo, kPrime);
  EXPECT_LT(expected.hi, kPrime);
}

TEST(Fingerprint, TheLengthCounts) {
  // Zero bytes at the end are what padding adds, too: only the length tells them apart.
  std::set<Fingerprint> seen;
  std::vector<std::byte> data = test_message(100);
  data.resize(2 * kBlockBytes + 8);
  for (std::size_t length = 100; length <= data.size(); length += 4)
    EXPECT_TRUE(seen.insert(fingerprint(params(), std::span(data).first(length))).second) << length;
}

TEST(Fingerprint, ZeroRunsAreKnownWithoutMemory) {
  const std::vector<std::byte> zeroes(300'000);
  std::set<Fingerprint> seen;
  for (const std::size_t length : {1UL, 16UL, 4096UL, 4097UL, 65536UL, 131072UL, 300'000UL}) {
    const Fingerprint f = fingerprint(params(), std::span(zeroes).first(length));
    EXPECT_EQ(fingerprint_of_zeroes(params(), length), f) << length;
    EXPECT_TRUE(seen.insert(f).second) << length;
  }
}

TEST(Fingerprint, EveryFlippedBitShows) {
  std::vector<std::byte> data = test_message(kBlockBytes + 100);
  std::set<Fingerprint> seen{fingerprint(params(), data)};
  for (std::size_t bit = 0; bit < data.size() * 8; bit += 5) {
    data[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_TRUE(seen.insert(fingerprint(params(), data)).second) << bit;
    data[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  }
}

TEST(Fingerprint, ExchangedBlocksShow) {
  std::vector<std::byte> data = test_message(4 * kBlockBytes);
  const Fingerprint before = fingerprint(params(), data);
  std::swap_ranges(data.begin(), data.begin() + kBlockBytes, data.begin() + 2 * kBlockBytes);
  EXPECT_NE(fingerprint(params(), data), before);
}

TEST(Fingerprint, AnotherKeyGivesOtherFingerprints) {
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

TEST(FingerprintCore, BlocksSummedByPowersEqualTheChain) {
  // The device adds blocks in any order, weighted by powers; the host chains them.
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
