// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/codec/sparse_plane.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "libckpt/datapath/codec/coder.h"

namespace ckpt::codec {
namespace {

using Bytes = std::vector<std::byte>;

TEST(SparsePlaneTest, PlanesWithFewExceptionsAreUnpackedUnchanged) {
  std::mt19937_64 random(3);
  for (const std::size_t bytes :
       {1UL, 7UL, 8UL, 9UL, 255UL, 256UL, 257UL, 511UL, 4096UL, 16384UL, 100001UL}) {
    for (std::size_t exceptions = 0; exceptions < 6; ++exceptions) {
      Bytes plane(bytes, std::byte{0x7e});
      // The first positions are the ends and the positions around a skip. Random positions follow.
      const std::size_t places[] = {0, bytes - 1, 254, 255, random(), random()};
      for (std::size_t i = 0; i < exceptions; ++i)
        plane[places[i] % bytes] = static_cast<std::byte>(random());
      Bytes packed(bytes / 64 + 16);
      const auto size = pack_sparse(plane, packed);
      if (!size) {
        EXPECT_GT(exceptions, 0U) << bytes;
        EXPECT_LT(bytes, 512U) << exceptions << " exceptions do not fit";
        continue;
      }
      // Guard bytes surround the plane on both sides.
      Bytes back(bytes + 2, std::byte{9});
      ASSERT_TRUE(unpack_sparse(std::span(packed).first(*size), std::span(back).subspan(1, bytes)));
      EXPECT_TRUE(std::equal(plane.begin(), plane.end(), back.begin() + 1)) << bytes << ", " << exceptions;
      EXPECT_EQ(back.front(), std::byte{9});
      EXPECT_EQ(back.back(), std::byte{9});
    }
  }
}

TEST(SparsePlaneTest, DensePlanesAndShortBuffersAreRefused) {
  std::mt19937_64 random(4);
  Bytes noise(4096);
  for (std::byte& b : noise) b = static_cast<std::byte>(random());
  Bytes out(8192);
  EXPECT_FALSE(pack_sparse(noise, out).has_value());
  EXPECT_FALSE(pack_sparse({}, out).has_value());
  Bytes plane(4096, std::byte{1});
  plane[100] = std::byte{2};
  ASSERT_EQ(pack_sparse(plane, out).value_or(0), 3U);
  EXPECT_TRUE(pack_sparse(plane, std::span(out).first(3)).has_value());
  EXPECT_FALSE(pack_sparse(plane, std::span(out).first(2)).has_value());
  EXPECT_FALSE(pack_sparse(plane, {}).has_value());
}

TEST(SparsePlaneTest, MalformedDescriptionsAreRefused) {
  Bytes plane(300);
  const auto unpacks = [&](std::initializer_list<int> values) {
    Bytes packed;
    for (const int value : values) packed.push_back(static_cast<std::byte>(value));
    return unpack_sparse(packed, plane);
  };
  EXPECT_TRUE(unpacks({1}));
  EXPECT_TRUE(unpacks({1, 255, 44, 2})) << "the last byte";
  EXPECT_FALSE(unpacks({1, 255, 45, 2})) << "the byte after it";
  EXPECT_FALSE(unpacks({1, 255, 44, 2, 0, 2}));
  EXPECT_FALSE(unpacks({1, 255, 255})) << "skips beyond the end";
  EXPECT_FALSE(unpacks({1, 7})) << "an exception without a value";
  EXPECT_FALSE(unpacks({}));
  EXPECT_FALSE(unpack_sparse(Bytes(1), {}));
}

// The upper planes of a small step have a single value, so they take almost no bytes on the wire and almost
// no time.
TEST(SparsePlaneTest, CoderUsesSparsePackingForTheUpperPlanesOfADifference) {
  constexpr std::size_t kElements = 16384;
  std::mt19937_64 random(5);
  std::vector<std::uint32_t> before(kElements), now(kElements);
  for (std::size_t i = 0; i < kElements; ++i) {
    before[i] = 0x3c000000U + static_cast<std::uint32_t>(random() % 0x400000);
    now[i] = before[i] + static_cast<std::uint32_t>(random() % 100);
  }
  now[777] += 1U << 25;
  const auto coder = Coder::create(kElements * 4).value();
  const auto chunk = std::as_bytes(std::span(now)), previous = std::as_bytes(std::span(before));
  Bytes wire(chunk.size()), back(chunk.size());
  (void)coder->estimate(chunk, previous);
  const auto size = coder->encode(Encoding::kDifference4, chunk, previous, wire);
  ASSERT_TRUE(size.has_value());
  for (std::size_t p = 2; p < 4; ++p) {
    std::uint32_t length = 0;
    std::memcpy(&length, wire.data() + p * 4, sizeof length);
    EXPECT_EQ(length >> 30, 3U) << p;
    EXPECT_LE(length & 0x3fffffff, 70U) << p;
  }
  const auto decoded = coder->decode(Encoding::kDifference4, std::span(wire).first(*size), previous, back);
  ASSERT_TRUE(decoded.has_value());
  EXPECT_TRUE(std::equal(chunk.begin(), chunk.end(), back.begin()));
}

}  // namespace
}  // namespace ckpt::codec
