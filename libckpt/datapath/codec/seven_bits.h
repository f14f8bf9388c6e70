// SPDX-License-Identifier: Apache-2.0
// Planes of bytes whose lowest bit is zero, in seven bits a byte. For numbers that are never negative (second
// moments, probabilities) the plane with the sign holds seven bits of mantissa, which are noise. Huffman
// finds the same eighth, at a fifth of the speed.
//
// Eight bytes become seven, the first one's bits lowest; what is left over at the end stays as it is.
// Threads: any, stateless; nothing is allocated. Sizes are bytes.
#pragma once

#include <cstddef>
#include <span>

namespace ckpt::codec {

[[nodiscard]] constexpr std::size_t seven_bits_size(std::size_t bytes) noexcept {
  return bytes / 8 * 7 + bytes % 8;
}
// Writes seven_bits_size(plane.size()) bytes; `out` is no shorter. False if the plane is not of that
// kind; `out` may have been written.
[[nodiscard]] bool pack_seven_bits(std::span<const std::byte> plane, std::span<std::byte> out) noexcept;
// False unless `packed` is of seven_bits_size(plane.size()) bytes, which is all that can be wrong with it.
[[nodiscard]] bool unpack_seven_bits(std::span<const std::byte> packed, std::span<std::byte> plane) noexcept;

}  // namespace ckpt::codec
