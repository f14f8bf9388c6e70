// SPDX-License-Identifier: Apache-2.0
// Tests of Coder: every chunk decodes to the original, shrinks as far as expected, and garbage input is
// refused.
#include "libckpt/datapath/codec/coder.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>

#include "tests/unit/libckpt/datapath/codec/chunks.h"

namespace {

std::atomic<std::uint64_t> allocations{0};

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace ckpt::codec {
namespace {

using test::Kind;
using test::make_chunk;
using Bytes = std::vector<std::byte>;

constexpr std::size_t kMaxBytes = 2 << 20;
constexpr Encoding kAll[] = {Encoding::kPlanes2, Encoding::kPlanes4, Encoding::kDifference2,
                             Encoding::kDifference4};

std::vector<Kind> all_kinds() {
  std::vector<Kind> kinds;
  for (int kind = 0; kind <= static_cast<int>(Kind::kLast); ++kind) kinds.push_back(static_cast<Kind>(kind));
  return kinds;
}

std::string name(Encoding encoding, Kind kind, std::size_t bytes) {
  return std::string(to_string(encoding)) + " of " +
         std::string(test::kKindNames[static_cast<std::size_t>(kind)]) + ", " + std::to_string(bytes) +
         " bytes";
}

class CoderTest : public testing::Test {
 protected:
  CoderTest() : coder_(Coder::create(kMaxBytes).value()) {}

  // Returns the encoded chunk, or an empty one if the encoding saves nothing. Guard bytes follow the output.
  Bytes encode(Encoding encoding, const Bytes& chunk, const Bytes& previous) {
    Bytes out(chunk.size() + 16, std::byte{0xa7});
    const auto size = coder_->encode(encoding, chunk, previous, std::span(out).first(chunk.size()));
    for (std::size_t at = chunk.size(); at < out.size(); ++at) EXPECT_EQ(out[at], std::byte{0xa7});
    if (!size) return {};
    EXPECT_LT(*size, chunk.size()) << "it gains nothing";
    out.resize(std::min(*size, chunk.size()));
    return out;
  }
  void expect_round_trip(Encoding encoding, const Bytes& chunk, const Bytes& previous,
                         const std::string& what) {
    const Bytes encoded = encode(encoding, chunk, previous);
    if (encoded.empty()) return;
    ++round_trips_;
    Bytes out(chunk.size() + 16, std::byte{0x5b});
    const auto decoded = coder_->decode(encoding, encoded, previous, std::span(out).first(chunk.size()));
    ASSERT_TRUE(decoded.has_value()) << what << ": " << decoded.error().to_string();
    ASSERT_TRUE(std::equal(chunk.begin(), chunk.end(), out.begin())) << what;
    for (std::size_t at = chunk.size(); at < out.size(); ++at) ASSERT_EQ(out[at], std::byte{0x5b}) << what;
  }
  double ratio(Encoding encoding, const Bytes& chunk, const Bytes& previous = {}) {
    const Bytes encoded = encode(encoding, chunk, previous);
    return encoded.empty() ? 1 : static_cast<double>(chunk.size()) / static_cast<double>(encoded.size());
  }

  std::unique_ptr<Coder> coder_;
  int round_trips_ = 0;
};

TEST_F(CoderTest, ChunksOfEveryKindAndSizeAreDecodedUnchanged) {
  for (std::size_t bytes = 4096; bytes <= kMaxBytes; bytes *= 2) {
    for (const Kind kind : all_kinds()) {
      const Bytes chunk = make_chunk(kind, bytes), previous = make_chunk(kind, bytes, 2);
      for (const Encoding encoding : kAll) {
        expect_round_trip(encoding, chunk, previous, name(encoding, kind, bytes));
      }
    }
  }
  EXPECT_GT(round_trips_, 200) << "hardly anything was encoded";
}

TEST_F(CoderTest, ChunksOfOddLengthsAreDecodedUnchanged) {
  std::vector<std::size_t> lengths;
  for (std::size_t bytes = 0; bytes <= 70; ++bytes) lengths.push_back(bytes);
  for (const std::size_t vector : {128, 256, 1024, 65536}) {
    for (std::size_t off = 0; off <= 70; ++off) lengths.push_back(vector - 35 + off);
  }
  for (const std::size_t bytes : lengths) {
    for (const Kind kind :
         {Kind::kZero, Kind::kWeights, Kind::kBfloat, Kind::kSpecial, Kind::kMostlyZero, Kind::kPositive}) {
      const Bytes chunk = make_chunk(kind, bytes), previous = make_chunk(kind, bytes, 2);
      for (const Encoding encoding : kAll) {
        expect_round_trip(encoding, chunk, previous, name(encoding, kind, bytes));
      }
    }
  }
  EXPECT_GT(round_trips_, 2000);
}

TEST_F(CoderTest, DifferencesOfUnlikeChunksAreDecodedUnchanged) {
  // Differences of unlike kinds wrap around and include NaNs and both zeroes.
  const std::size_t bytes = 8192;
  for (const Kind kind : all_kinds()) {
    for (const Kind before : all_kinds()) {
      const Bytes chunk = make_chunk(kind, bytes), previous = make_chunk(before, bytes, 3);
      expect_round_trip(Encoding::kDifference2, chunk, previous, "difference2");
      expect_round_trip(Encoding::kDifference4, chunk, previous, "difference4");
    }
  }
}

TEST_F(CoderTest, UnalignedChunksAreDecodedUnchanged) {
  const Bytes all = make_chunk(Kind::kWeights, 65536 + 8), old = make_chunk(Kind::kWeights, 65536 + 8, 2);
  for (std::size_t off = 0; off < 8; ++off) {
    const auto at = static_cast<std::ptrdiff_t>(off);
    const Bytes chunk(all.begin() + at, all.begin() + at + 65536);
    Bytes memory(65536 * 2 + 64);
    const auto part = std::span(memory).subspan(off, 65536);
    const auto size = coder_->encode(Encoding::kDifference4, std::span(all).subspan(off, 65536),
                                     std::span(old).subspan(off, 65536), part);
    if (!size) continue;
    const auto out = std::span(memory).subspan(65536 + 16 + off, 65536);
    ASSERT_TRUE(
        coder_->decode(Encoding::kDifference4, part.first(*size), std::span(old).subspan(off, 65536), out)
            .has_value());
    EXPECT_TRUE(std::equal(chunk.begin(), chunk.end(), out.begin())) << off;
  }
}

TEST_F(CoderTest, ADifferenceIsDecodedOverThePreviousVersion) {
  const Bytes chunk = make_chunk(Kind::kIntegers, 65536 + 3);
  Bytes held = make_chunk(Kind::kIntegers, 65536 + 3, 2);
  for (const Encoding encoding : {Encoding::kDifference2, Encoding::kDifference4}) {
    Bytes memory = held;
    const Bytes encoded = encode(encoding, chunk, memory);
    ASSERT_FALSE(encoded.empty());
    ASSERT_TRUE(coder_->decode(encoding, encoded, memory, memory).has_value());
    EXPECT_EQ(memory, chunk);
  }
}

TEST_F(CoderTest, SampleOfAChunkDoesNotAffectAnotherChunk) {
  // The memory holds noise when it is sampled and weights when it is encoded, and vice versa.
  Bytes chunk = make_chunk(Kind::kRandom, 65536);
  EXPECT_EQ(coder_->estimate(chunk, {}).encoding, Encoding::kRaw);
  const Bytes weights = make_chunk(Kind::kWeights, 65536);
  std::copy(weights.begin(), weights.end(), chunk.begin());
  expect_round_trip(Encoding::kPlanes4, chunk, {}, "weights after noise");
  EXPECT_GT(ratio(Encoding::kPlanes4, chunk), 1.15) << "a sample is used twice";
  EXPECT_EQ(coder_->estimate(chunk, {}).encoding, Encoding::kPlanes4);
  const Bytes noise = make_chunk(Kind::kRandom, 65536);
  std::copy(noise.begin(), noise.end(), chunk.begin());
  expect_round_trip(Encoding::kPlanes4, chunk, {}, "noise after weights");
}

TEST_F(CoderTest, SmoothDataCompressesAsMeasuredInTraining) {
  for (const std::size_t bytes : {65536, 1 << 20}) {
    EXPECT_GT(ratio(Encoding::kPlanes4, make_chunk(Kind::kWeights, bytes)), 1.15);
    EXPECT_GT(ratio(Encoding::kPlanes2, make_chunk(Kind::kBfloat, bytes)), 1.40);
    EXPECT_GT(ratio(Encoding::kPlanes4, make_chunk(Kind::kMostlyZero, bytes)), 8);
    EXPECT_GT(ratio(Encoding::kPlanes4, make_chunk(Kind::kPositive, bytes)), 1.2);
    EXPECT_GT(ratio(Encoding::kPlanes4, make_chunk(Kind::kZero, bytes)), 500);
    const Bytes same = make_chunk(Kind::kRandom, bytes);
    EXPECT_GT(ratio(Encoding::kDifference4, same, same), 500) << "an unchanged chunk";
  }
}

TEST_F(CoderTest, NoiseIsNotEncoded) {
  const Bytes noise = make_chunk(Kind::kRandom, 65536), other = make_chunk(Kind::kRandom, 65536, 2);
  for (const Encoding encoding : kAll) EXPECT_TRUE(encode(encoding, noise, other).empty());
  EXPECT_EQ(coder_->estimate(noise, other).encoding, Encoding::kRaw);
}

TEST_F(CoderTest, EncodingsOfOtherCodersAreNotEncoded) {
  const Bytes chunk = make_chunk(Kind::kZero, 65536);
  for (const Encoding encoding :
       {Encoding::kInvalid, Encoding::kZero, Encoding::kRaw, Encoding::kBlocks, static_cast<Encoding>(99)}) {
    EXPECT_TRUE(encode(encoding, chunk, chunk).empty());
  }
  EXPECT_TRUE(encode(Encoding::kDifference4, chunk, Bytes(65535)).empty()) << "previous of another length";
  EXPECT_TRUE(encode(Encoding::kPlanes4, Bytes(kMaxBytes + 4), {}).empty()) << "longer than agreed";
  Bytes small(65535);
  EXPECT_FALSE(coder_->encode(Encoding::kPlanes4, chunk, {}, small).has_value());
}

TEST_F(CoderTest, EstimateIsCloseToTheEncodedSize) {
  for (const std::size_t bytes : {4096, 65536, 1 << 20}) {
    for (const Kind kind : all_kinds()) {
      if (kind == Kind::kZero || kind == Kind::kConstant)
        continue;  // the ratio of these kinds has no useful
                   // bound
      const Bytes chunk = make_chunk(kind, bytes);
      Bytes previous = chunk;
      for (std::size_t at = 0; at < bytes; at += 4) previous[at] ^= static_cast<std::byte>(at % 13);
      const Estimate estimate = coder_->estimate(chunk, previous);
      const auto close = [&](Encoding encoding, double expected) {
        if (encoding == Encoding::kRaw) return;
        const double real = ratio(encoding, chunk, previous);
        EXPECT_GT(expected / real, 0.75) << name(encoding, kind, bytes) << " " << expected << " " << real;
        EXPECT_LT(expected / real, 1.35) << name(encoding, kind, bytes) << " " << expected << " " << real;
      };
      close(estimate.planes, estimate.planes_ratio);
      close(estimate.difference, estimate.difference_ratio);
      EXPECT_EQ(estimate.ratio, std::max(estimate.planes_ratio, estimate.difference_ratio));
    }
  }
}

TEST_F(CoderTest, EstimateDetectsTheElementSize) {
  const Bytes weights = make_chunk(Kind::kWeights, 65536), bfloat = make_chunk(Kind::kBfloat, 65536);
  EXPECT_EQ(coder_->estimate(weights, {}).planes, Encoding::kPlanes4);
  EXPECT_EQ(coder_->estimate(bfloat, {}).planes, Encoding::kPlanes2);
  EXPECT_EQ(coder_->estimate(weights, {}).difference, Encoding::kRaw);
  EXPECT_EQ(coder_->estimate(weights, weights).encoding, Encoding::kDifference4);
  EXPECT_EQ(coder_->estimate(bfloat, bfloat).encoding, Encoding::kDifference2);
  EXPECT_EQ(coder_->estimate({}, {}).encoding, Encoding::kRaw);
}

TEST_F(CoderTest, CoderAllocatesNoMemoryPerChunk) {
  const Bytes chunk = make_chunk(Kind::kIntegers, kMaxBytes),
              previous = make_chunk(Kind::kIntegers, kMaxBytes, 2);
  Bytes out(kMaxBytes), back(kMaxBytes);
  const std::uint64_t before = allocations.load();
  for (const std::size_t bytes : {kMaxBytes, std::size_t{65536}, kMaxBytes}) {
    const auto plain = std::span(chunk).first(bytes), old = std::span(previous).first(bytes);
    static_cast<void>(coder_->estimate(plain, old));
    for (const Encoding encoding : kAll) {
      const auto size = coder_->encode(encoding, plain, old, out);
      if (!size ||
          !coder_->decode(encoding, std::span(out).first(*size), old, std::span(back).first(bytes))) {
        ADD_FAILURE() << to_string(encoding);
      }
    }
  }
  EXPECT_EQ(allocations.load(), before);
}

TEST_F(CoderTest, CoderOfInvalidSizeIsRefused) {
  EXPECT_FALSE(Coder::create(0).has_value());
  EXPECT_FALSE(Coder::create(std::size_t{1} << 31).has_value());
}

}  // namespace
}  // namespace ckpt::codec
