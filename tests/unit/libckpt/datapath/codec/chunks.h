// SPDX-License-Identifier: Apache-2.0
// Chunks of every kind for the codec tests. The content is deterministic: kind, length and seed determine a
// chunk.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <string_view>
#include <vector>

namespace ckpt::codec::test {

enum class Kind {
  kZero,
  kConstant,
  kRandom,
  kWeights,     // fp32 values with a Gaussian distribution
  kBfloat,      // bf16 values with a Gaussian distribution
  kHalf,        // fp16 bits of small numbers
  kDenormal,    // fp32 denormals
  kSpecial,     // a mix of NaNs with payloads, infinities, -0 and numbers
  kIntegers,    // small i32 values of both signs
  kMostlyZero,  // one element in 50 is nonzero
  kPositive,    // fp32 squares, which are never negative
  kLast = kPositive,
};
inline constexpr std::string_view kKindNames[] = {"zero",     "constant",    "random",   "weights",
                                                  "bfloat",   "half",        "denormal", "special",
                                                  "integers", "mostly-zero", "positive"};

inline std::uint16_t to_bfloat(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline std::uint32_t special_word(std::mt19937_64& random) {
  const auto payload = static_cast<std::uint32_t>(random());
  switch (random() % 6) {
    case 0:
      return 0x7f800001U | payload;  // a NaN of either sign, quiet or signaling
    case 1:
      return 0x7f800000U;
    case 2:
      return 0xff800000U;
    case 3:
      return 0x80000000U;
    case 4:
      return 0;
    default:
      return payload;
  }
}

inline std::uint32_t word_of(Kind kind, std::mt19937_64& random, std::normal_distribution<float>& normal) {
  const auto any = static_cast<std::uint32_t>(random());
  switch (kind) {
    case Kind::kZero:
      return 0;
    case Kind::kConstant:
      return 0x3c5a3c5aU;
    case Kind::kRandom:
      return any;
    case Kind::kWeights:
      return std::bit_cast<std::uint32_t>(0.02F * normal(random));
    case Kind::kBfloat: {
      const std::uint32_t low = to_bfloat(0.02F * normal(random));
      return low | static_cast<std::uint32_t>(to_bfloat(0.02F * normal(random))) << 16;
    }
    case Kind::kHalf:
      return (any & 0x83ff83ffU) | 0x2c002c00U;
    case Kind::kDenormal:
      return any & 0x807fffffU;
    case Kind::kSpecial:
      return special_word(random);
    case Kind::kIntegers:
      return static_cast<std::uint32_t>(static_cast<std::int32_t>(normal(random) * 1000));
    case Kind::kMostlyZero:
      return random() % 50 == 0 ? any : 0;
    case Kind::kPositive: {
      const float value = 1e-4F * normal(random);
      return std::bit_cast<std::uint32_t>(value * value);
    }
  }
  return 0;
}

inline std::vector<std::byte> make_chunk(Kind kind, std::size_t bytes, std::uint64_t seed = 1) {
  std::mt19937_64 random(seed * 1000003 + bytes + static_cast<std::uint64_t>(kind));
  std::normal_distribution<float> normal;
  std::vector<std::byte> chunk(bytes);
  for (std::size_t at = 0; at < bytes; at += 4) {
    const std::uint32_t word = word_of(kind, random, normal);
    std::memcpy(chunk.data() + at, &word, std::min<std::size_t>(4, bytes - at));
  }
  return chunk;
}

}  // namespace ckpt::codec::test
