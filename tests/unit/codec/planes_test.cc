// SPDX-License-Identifier: Apache-2.0
// The vectorised planes are the scalar ones, and the scalar ones are what the header says.
#include "libckpt/codec/planes.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/codec/chunks.h"

namespace ckpt::codec {
namespace {

using Bytes = std::vector<std::byte>;

TEST(Planes, TheOrderOfBitsIsTheOrderOfFloats) {
  const float ascending[] = {
      -std::numeric_limits<float>::infinity(), -2, -1, -1e-40F, -0.0F, 0.0F, 1e-40F, 1, 2,
      std::numeric_limits<float>::infinity()};
  for (std::size_t i = 0; i + 1 < std::size(ascending); ++i) {
    EXPECT_LT(ordered(std::bit_cast<std::uint32_t>(ascending[i])),
              ordered(std::bit_cast<std::uint32_t>(ascending[i + 1])))
        << ascending[i];
  }
  // Neighbours are one apart on either side, in either direction.
  for (const float value : {1.5F, -1.5F}) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    EXPECT_LE(difference(bits + 1, bits), 2U);
    EXPECT_LE(difference(bits, bits + 1), 2U);
  }
}

TEST(Planes, EveryPairOfHalfWordsComesBack) {
  for (std::uint32_t value = 0; value < 65536; ++value) {
    const auto word = static_cast<std::uint16_t>(value);
    ASSERT_EQ(unrotated(rotated(word)), word);
    ASSERT_EQ(unordered(ordered(word)), word);
    for (const std::uint16_t previous : {0, 1, 0x7fff, 0x8000, 0xffff, 0x3f80, 0xbf80}) {
      ASSERT_EQ(undifference(difference(word, previous), previous), word);
    }
  }
}

TEST(Planes, VectorsGiveWhatScalarsGive) {
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

}  // namespace
}  // namespace ckpt::codec
