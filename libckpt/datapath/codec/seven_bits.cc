// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/codec/seven_bits.h"

#include <cstdint>
#include <cstring>

namespace ckpt::codec {
namespace {

constexpr std::uint64_t kLowest = 0x0101010101010101;

// Squeezes the fields in pairs: 8 of 7 bits, 4 of 14, 2 of 28. (pext does this in one instruction, but very
// slowly on some processors.)
constexpr std::uint64_t squeezed(std::uint64_t x) noexcept {
  x >>= 1;
  x = (x & 0x007f007f007f007f) | (x & 0x7f007f007f007f00) >> 1;
  x = (x & 0x00003fff00003fff) | (x & 0x3fff00003fff0000) >> 2;
  return (x & 0x000000000fffffff) | (x & 0x0fffffff00000000) >> 4;
}
constexpr std::uint64_t spread(std::uint64_t x) noexcept {
  x = (x & 0x000000000fffffff) | (x & 0x00fffffff0000000) << 4;
  x = (x & 0x00003fff00003fff) | (x & 0x0fffc0000fffc000) << 2;
  x = (x & 0x007f007f007f007f) | (x & 0x3f803f803f803f80) << 1;
  return x << 1;
}
static_assert(spread(squeezed(0xfe02fc8040201006)) == 0xfe02fc8040201006);

}  // namespace

bool pack_seven_bits(std::span<const std::byte> plane, std::span<std::byte> out) noexcept {
  const std::size_t groups = plane.size() / 8;
  std::uint64_t odd = 0;
  for (std::size_t g = 0; g < groups; ++g) {
    std::uint64_t word;
    std::memcpy(&word, plane.data() + g * 8, 8);
    odd |= word & kLowest;
    // Planes in which a lowest bit is not zero are detected early.
    if (g % 64 == 0 && odd != 0) return false;
    word = squeezed(word);
    // The next group overwrites the eighth byte.
    std::memcpy(out.data() + g * 7, &word, g + 1 < groups ? 8 : 7);
  }
  if (plane.size() % 8 != 0) {
    std::memcpy(out.data() + groups * 7, plane.data() + groups * 8, plane.size() % 8);
  }
  return odd == 0;
}

bool unpack_seven_bits(std::span<const std::byte> packed, std::span<std::byte> plane) noexcept {
  if (packed.size() != seven_bits_size(plane.size())) return false;
  const std::size_t groups = plane.size() / 8;
  for (std::size_t g = 0; g < groups; ++g) {
    std::uint64_t word = 0;
    std::memcpy(&word, packed.data() + g * 7, g + 1 < groups ? 8 : 7);
    word = spread(word);
    std::memcpy(plane.data() + g * 8, &word, 8);
  }
  if (plane.size() % 8 != 0) {
    std::memcpy(plane.data() + groups * 8, packed.data() + groups * 7, plane.size() % 8);
  }
  return true;
}

}  // namespace ckpt::codec
