// SPDX-License-Identifier: Apache-2.0
// Bytes of a broken or hostile peer are refused or decode to the correct length. They never make the decoder
// touch other memory; the guards here and the address sanitizer (where enabled) check this.
#include <gtest/gtest.h>

#include "libckpt/datapath/codec/coder.h"
#include "tests/unit/libckpt/datapath/codec/chunks.h"

namespace ckpt::codec {
namespace {

using test::Kind;
using test::make_chunk;
using Bytes = std::vector<std::byte>;

constexpr std::size_t kBytes = 16384 + 3;
constexpr Encoding kAll[] = {Encoding::kPlanes2, Encoding::kPlanes4, Encoding::kDifference2,
                             Encoding::kDifference4};

class HostileTest : public testing::Test {
 protected:
  HostileTest()
      : coder_(Coder::create(65536).value()),
        chunk_(make_chunk(Kind::kIntegers, kBytes)),
        positive_(make_chunk(Kind::kPositive, kBytes)),
        previous_(make_chunk(Kind::kIntegers, kBytes, 2)) {}

  Bytes encoded(Encoding encoding) {
    Bytes out(kBytes);
    const Bytes& chunk = encoding == Encoding::kPlanes4 ? positive_ : chunk_;
    const auto size = coder_->encode(encoding, chunk, previous_, out);
    EXPECT_TRUE(size.has_value());
    out.resize(size.value_or(0));
    return out;
  }
  // Returns whether the decoder accepted the input. The input is in a buffer of exactly its size.
  bool decodes(Encoding encoding, const Bytes& input, std::size_t out_bytes = kBytes) {
    Bytes previous = previous_;
    previous.resize(out_bytes);
    Bytes out(out_bytes + 64, std::byte{0x5b});
    const auto result = coder_->decode(encoding, input, previous, std::span(out).first(out_bytes));
    for (std::size_t at = out_bytes; at < out.size(); ++at) EXPECT_EQ(out[at], std::byte{0x5b});
    if (result.has_value()) return true;
    EXPECT_EQ(result.error().code(), ErrorCode::kCorrupt);
    for (std::size_t at = 0; at < out_bytes; ++at) {
      if (out[at] == std::byte{0x5b}) continue;
      ADD_FAILURE() << "a refused chunk was written at " << at;
      break;
    }
    return false;
  }

  std::unique_ptr<Coder> coder_;
  const Bytes chunk_, positive_, previous_;  // the positive chunk also has planes of seven bits
};

TEST_F(HostileTest, EveryTruncationIsRefused) {
  for (const Encoding encoding : kAll) {
    const Bytes whole = encoded(encoding);
    for (std::size_t bytes = 0; bytes < whole.size(); bytes += bytes < 64 ? 1 : 37) {
      EXPECT_FALSE(
          decodes(encoding, Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes))))
          << to_string(encoding) << " cut to " << bytes;
    }
    Bytes longer = whole;
    longer.push_back(std::byte{0});
    EXPECT_FALSE(decodes(encoding, longer)) << to_string(encoding);
    EXPECT_TRUE(decodes(encoding, whole)) << "the whole is not";
  }
}

TEST_F(HostileTest, WrongLengthIsRefused) {
  for (const Encoding encoding : kAll) {
    const Bytes whole = encoded(encoding);
    for (const std::size_t bytes :
         {0UL, 1UL, 3UL, 4UL, kBytes - 4, kBytes - 1, kBytes + 1, kBytes + 4, 65536UL, 65537UL, 100000UL}) {
      EXPECT_FALSE(decodes(encoding, whole, bytes)) << to_string(encoding) << " to " << bytes;
    }
  }
}

TEST_F(HostileTest, FlippedBitsAreRefusedOrGiveACompleteChunk) {
  std::mt19937_64 random(7);
  int refused = 0;
  for (const Encoding encoding : kAll) {
    const Bytes whole = encoded(encoding);
    for (int turn = 0; turn < 4000; ++turn) {
      Bytes input = whole;
      const std::size_t within = turn % 2 == 0 ? 64 : input.size();
      for (std::uint64_t flips = 1 + random() % 3; flips > 0; --flips) {
        input[random() % within] ^= static_cast<std::byte>(1U << (random() % 8));
      }
      refused += decodes(encoding, input) ? 0 : 1;
    }
  }
  EXPECT_GT(refused, 4000) << "lengths are not checked";
}

TEST_F(HostileTest, RandomBytesAreRefused) {
  std::mt19937_64 random(8);
  for (int turn = 0; turn < 20000; ++turn) {
    Bytes input(random() % 600);
    for (std::byte& b : input) b = static_cast<std::byte>(random());
    EXPECT_FALSE(decodes(kAll[random() % 4], input));
  }
}

TEST_F(HostileTest, LengthsInTheHeaderAreValidated) {
  for (const Encoding encoding : kAll) {
    for (const std::uint32_t length : {0U, 1U, 0x7fffffffU, 0x80000000U, 0xffffffffU, 0x80000001U,
                                       0x80004000U, 0x40000000U, 0x40000e00U, 0xc0000e00U, 4096U, 8193U}) {
      for (std::size_t p = 0; p < 2; ++p) {
        Bytes input = encoded(encoding);
        std::uint32_t before = 0;
        std::memcpy(&before, input.data() + p * 4, 4);
        if (before == length) continue;
        std::memcpy(input.data() + p * 4, &length, 4);
        EXPECT_FALSE(decodes(encoding, input)) << to_string(encoding) << " length " << length;
      }
    }
  }
}

TEST_F(HostileTest, ADifferenceWithoutAPreviousVersionIsRefused) {
  for (const Encoding encoding : {Encoding::kDifference2, Encoding::kDifference4}) {
    Bytes out(kBytes);
    const auto none = coder_->decode(encoding, encoded(encoding), {}, out);
    ASSERT_FALSE(none.has_value());
    EXPECT_EQ(none.error().code(), ErrorCode::kCorrupt);
    EXPECT_FALSE(
        coder_->decode(encoding, encoded(encoding), std::span(previous_).first(kBytes - 1), out).has_value());
  }
}

TEST_F(HostileTest, EncodingsOfOtherCodersAreRefused) {
  for (int value = 0; value < 256; ++value) {
    const auto encoding = static_cast<Encoding>(value);
    if (encoding == Encoding::kRaw ||
        std::find(std::begin(kAll), std::end(kAll), encoding) != std::end(kAll)) {
      continue;
    }
    EXPECT_FALSE(decodes(encoding, chunk_)) << value;
  }
  EXPECT_TRUE(decodes(Encoding::kRaw, chunk_));
  EXPECT_FALSE(decodes(Encoding::kRaw, chunk_, kBytes - 1));
}

}  // namespace
}  // namespace ckpt::codec
