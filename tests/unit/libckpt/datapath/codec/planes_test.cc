// SPDX-License-Identifier: Apache-2.0
// Checks that the vectorized planes equal the scalar planes, and that the scalar planes match the definition
// in the header.
#include "libckpt/datapath/codec/planes.h"

#include <gtest/gtest.h>

#include <limits>

#include "libckpt/datapath/codec/seven_bits.h"
#include "tests/unit/libckpt/datapath/codec/chunks.h"

namespace ckpt::codec {
namespace {

using Bytes = std::vector<std::byte>;

TEST(Planes, OrderedBitsPreserveTheOrderOfFloats) {
  const float ascending[] = {
      -std::numeric_limits<float>::infinity(), -2, -1, -1e-40F, -0.0F, 0.0F, 1e-40F, 1, 2,
      std::numeric_limits<float>::infinity()};
  for (std::size_t i = 0; i + 1 < std::size(ascending); ++i) {
    EXPECT_LT(ordered(std::bit_cast<std::uint32_t>(ascending[i])),
              ordered(std::bit_cast<std::uint32_t>(ascending[i + 1])))
        << ascending[i];
  }
  // Neighboring values differ by one on either side of zero, in either direction.
  for (const float value : {1.5F, -1.5F}) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    EXPECT_LE(difference(bits + 1, bits), 2U);
    EXPECT_LE(difference(bits, bits + 1), 2U);
  }
}

TEST(Planes, TransformsOfAHalfWordAreReversible) {
  for (std::uint32_t value = 0; value < 65536; ++value) {
    const auto word = static_cast<std::uint16_t>(value);
    ASSERT_EQ(unrotated(rotated(word)), word);
    ASSERT_EQ(unordered(ordered(word)), word);
    for (const std::uint16_t previous : {0, 1, 0x7fff, 0x8000, 0xffff, 0x3f80, 0xbf80}) {
      ASSERT_EQ(undifference(difference(word, previous), previous), word);
    }
  }
}

TEST(Planes, VectorAndScalarKernelsAgree) {
  const PlaneKernels& fast = plane_kernels();
  const PlaneKernels& plain = scalar_plane_kernels();
  for (const std::size_t elements : {0, 1, 31, 32, 33, 63, 64, 65, 1000}) {
    for (const std::size_t width : {2, 4}) {
      const Bytes in = test::make_chunk(test::Kind::kSpecial, elements * width);
      const Bytes old = test::make_chunk(test::Kind::kRandom, elements * width);
      for (const std::byte* previous : {static_cast<const std::byte*>(nullptr), old.data()}) {
        Bytes split(elements * 4 + 1, std::byte{9}), expected = split, back(in.size() + 1, std::byte{9});
        const auto planes = [&](auto& memory) {
          return std::array{memory.data(), memory.data() + elements, memory.data() + elements * 2,
                            memory.data() + elements * 3};
        };
        (width == 2 ? fast.split2 : fast.split4)(in.data(), previous, elements, planes(split));
        (width == 2 ? plain.split2 : plain.split4)(in.data(), previous, elements, planes(expected));
        ASSERT_EQ(split, expected) << elements << " elements of " << width;
        const PlanesIn merged = planes(std::as_const(split));
        (width == 2 ? fast.merge2 : fast.merge4)(merged, previous, elements, back.data());
        ASSERT_TRUE(std::equal(in.begin(), in.end(), back.begin())) << elements << " elements of " << width;
        ASSERT_EQ(back.back(), std::byte{9}) << "written behind the end";
        (width == 2 ? plain.merge2 : plain.merge4)(merged, previous, elements, back.data());
        ASSERT_TRUE(std::equal(in.begin(), in.end(), back.begin()));
      }
    }
  }
}

TEST(SevenBits, PlanesWithoutLowestBitsAreUnpackedUnchanged) {
  for (const std::size_t bytes : {0, 1, 7, 8, 9, 15, 16, 17, 600, 4099}) {
    Bytes plane = test::make_chunk(test::Kind::kRandom, bytes);
    for (std::byte& b : std::span(plane).first(bytes / 8 * 8)) b &= std::byte{0xfe};
    Bytes packed(seven_bits_size(bytes) + 1, std::byte{9}), back(bytes + 1, std::byte{9});
    ASSERT_TRUE(pack_seven_bits(plane, std::span(packed).first(seven_bits_size(bytes))));
    EXPECT_EQ(packed.back(), std::byte{9});
    ASSERT_TRUE(
        unpack_seven_bits(std::span(packed).first(seven_bits_size(bytes)), std::span(back).first(bytes)));
    ASSERT_TRUE(std::equal(plane.begin(), plane.end(), back.begin())) << bytes;
    EXPECT_EQ(back.back(), std::byte{9});
    EXPECT_FALSE(unpack_seven_bits(packed, std::span(back).first(bytes))) << "longer than it can be";
  }
}

TEST(SevenBits, PlaneWithALowestBitIsRefused) {
  Bytes plane(4096, std::byte{0xfe}), out(4096);
  for (std::size_t at = 0; at < plane.size(); at += 31) {
    plane[at] = std::byte{1};
    EXPECT_FALSE(pack_seven_bits(plane, out)) << at;
    plane[at] = std::byte{0xfe};
  }
  EXPECT_TRUE(pack_seven_bits(plane, out));
}

}  // namespace
}  // namespace ckpt::codec
