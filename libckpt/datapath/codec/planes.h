// SPDX-License-Identifier: Apache-2.0
// Elements of 2 or 4 bytes split into byte planes (plane 0 has the least significant bytes) and merged again.
//
// Before splitting, an element is rotated left by one bit. The rotation moves the sign to the lowest bit and
// gives the exponent its own plane in bf16 and fp32. With `previous`, the element is replaced by the zigzag
// of its difference to the element of `previous` instead. Both elements are taken as integers in the order of
// the floats, so a small step in either direction is a small number. Rotation and difference are bijections
// on bits: NaN payloads, -0 and integers are restored exactly.
//
// The code is vectorized for AVX2; the processor is queried once.
// Threads: any, stateless. No function fails. Sizes are elements.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace ckpt::codec {

inline constexpr std::size_t kMaxPlanes = 4;
using PlanesOut = std::array<std::byte*, kMaxPlanes>;
using PlanesIn = std::array<const std::byte*, kMaxPlanes>;

template <class Word>
constexpr Word rotated(Word value) noexcept {
  return std::rotl(value, 1);
}
template <class Word>
constexpr Word unrotated(Word value) noexcept {
  return std::rotr(value, 1);
}
// Maps floats to integers of the same order: negative floats count backwards.
template <class Word>
constexpr Word ordered(Word value) noexcept {
  constexpr int kTop = sizeof(Word) * 8 - 1;
  const Word sign = static_cast<Word>(value >> kTop);
  return static_cast<Word>(value ^ static_cast<Word>(Word(0) - sign) ^
                           static_cast<Word>(static_cast<Word>(sign ^ 1) << kTop));
}
template <class Word>
constexpr Word unordered(Word value) noexcept {
  constexpr int kTop = sizeof(Word) * 8 - 1;
  const Word positive = static_cast<Word>(value >> kTop);
  return static_cast<Word>(value ^ static_cast<Word>(positive - 1) ^ static_cast<Word>(positive << kTop));
}
template <class Word>
constexpr Word difference(Word value, Word previous) noexcept {
  constexpr int kTop = sizeof(Word) * 8 - 1;
  const Word step = static_cast<Word>(ordered(value) - ordered(previous));
  return static_cast<Word>(static_cast<Word>(step << 1) ^ static_cast<Word>(Word(0) - (step >> kTop)));
}
template <class Word>
constexpr Word undifference(Word zigzag, Word previous) noexcept {
  const Word step = static_cast<Word>((zigzag >> 1) ^ static_cast<Word>(Word(0) - (zigzag & 1)));
  return unordered(static_cast<Word>(step + ordered(previous)));
}

// One implementation of splitting and merging. `previous` is nullptr for plain planes. In merge, `out` may be
// `previous` itself.
struct PlaneKernels {
  void (*split2)(const std::byte* in, const std::byte* previous, std::size_t elements,
                 const PlanesOut& planes) noexcept;
  void (*split4)(const std::byte* in, const std::byte* previous, std::size_t elements,
                 const PlanesOut& planes) noexcept;
  void (*merge2)(const PlanesIn& planes, const std::byte* previous, std::size_t elements,
                 std::byte* out) noexcept;
  void (*merge4)(const PlanesIn& planes, const std::byte* previous, std::size_t elements,
                 std::byte* out) noexcept;
};
// Returns the fastest implementation for this processor. The scalar implementation gives the same results.
[[nodiscard]] const PlaneKernels& plane_kernels() noexcept;
[[nodiscard]] const PlaneKernels& scalar_plane_kernels() noexcept;

}  // namespace ckpt::codec
