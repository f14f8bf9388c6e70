// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/codec/codec.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace ckpt::codec {
namespace {

std::vector<std::byte> random_bytes(std::size_t bytes) {
  std::mt19937_64 random(bytes + 1);
  std::vector<std::byte> data(bytes);
  for (std::byte& b : data) b = static_cast<std::byte>(random());
  return data;
}

TEST(IsZero, NonzeroBitIsFoundAtAnyPosition) {
  std::vector<std::byte> data(4096 + 64);
  for (const std::size_t length : {1, 7, 8, 31, 127, 128, 129, 255, 300, 4096}) {
    for (const std::size_t start : {0, 1, 13, 32}) {
      const std::span<std::byte> part = std::span(data).subspan(start, length);
      EXPECT_TRUE(is_zero(part)) << length;
      for (std::size_t at = 0; at < length; ++at) {
        part[at] = std::byte{0x10};
        EXPECT_FALSE(is_zero(part)) << length << " at " << at;
        part[at] = std::byte{0};
      }
      // Bytes outside the part do not count.
      data[start + length] = std::byte{1};
      EXPECT_TRUE(is_zero(part)) << length;
      data[start + length] = std::byte{0};
    }
  }
  EXPECT_TRUE(is_zero({}));
}

TEST(Codec, RawAndZeroChunksAreDecodedUnchanged) {
  for (const std::size_t length : {0, 1, 65535, 65536}) {
    for (const Encoding encoding : {Encoding::kZero, Encoding::kRaw}) {
      const Codec* codec = find_codec(encoding);
      ASSERT_NE(codec, nullptr);
      EXPECT_EQ(codec->encoding(), encoding);
      const std::vector<std::byte> chunk =
          encoding == Encoding::kZero ? std::vector<std::byte>(length) : random_bytes(length);
      std::vector<std::byte> encoded(codec->bound(length));
      const auto size = codec->encode(chunk, encoded);
      ASSERT_TRUE(size.has_value());
      ASSERT_LE(*size, encoded.size());
      std::vector<std::byte> back(length, std::byte{0x5a});
      ASSERT_TRUE(codec->decode(std::span(encoded).first(*size), back).has_value());
      EXPECT_EQ(back, chunk);
    }
  }
}

TEST(Codec, ZeroCodecRefusesNonzeroChunks) {
  std::vector<std::byte> chunk(1000);
  chunk[999] = std::byte{1};
  EXPECT_FALSE(find_codec(Encoding::kZero)->encode(chunk, {}).has_value());
}

TEST(Codec, RawCodecRefusesAShortOutput) {
  const std::vector<std::byte> chunk = random_bytes(100);
  std::vector<std::byte> out(99);
  EXPECT_FALSE(find_codec(Encoding::kRaw)->encode(chunk, out).has_value());
}

TEST(Codec, WrongLengthsAreReportedAsCorrupt) {
  const std::vector<std::byte> in = random_bytes(100);
  std::vector<std::byte> out(101, std::byte{7});
  const auto raw = find_codec(Encoding::kRaw)->decode(in, out);
  ASSERT_FALSE(raw.has_value());
  EXPECT_EQ(raw.error().code(), ErrorCode::kCorrupt);
  const auto zero = find_codec(Encoding::kZero)->decode(in, out);
  ASSERT_FALSE(zero.has_value());
  EXPECT_EQ(zero.error().code(), ErrorCode::kCorrupt);
  EXPECT_EQ(out, std::vector<std::byte>(101, std::byte{7})) << "a refused chunk was written";
}

TEST(Codec, UnknownEncodingsHaveNoCodec) {
  EXPECT_EQ(find_codec(Encoding::kInvalid), nullptr);
  for (int value = 3; value < 256; ++value) EXPECT_EQ(find_codec(static_cast<Encoding>(value)), nullptr);
}

}  // namespace
}  // namespace ckpt::codec
