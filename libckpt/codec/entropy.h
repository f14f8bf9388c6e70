// SPDX-License-Identifier: Apache-2.0
// The entropy of a chunk's byte planes, sampled: whole cache lines at spread places, so that a chunk that is not in the cache
// costs few misses. A few hundred elements tell a plane of noise from one that shrinks; the estimate is corrected for its own
// smallness (Miller and Madow), else 512 samples of noise would look like 7.6 bits.
// Threads: an object belongs to one thread at a time. No function fails. Entropy is in bits per byte.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "libckpt/codec/planes.h"

namespace ckpt::codec {

using PlaneEntropy = std::array<double, kMostPlanes>;

class EntropySampler {
 public:
  EntropySampler() noexcept;
  // Of the planes of elements of `width` bytes (2 or 4) as split() would make them; `previous` is empty or as long as `chunk`.
  [[nodiscard]] PlaneEntropy sample(std::size_t width, std::span<const std::byte> chunk,
                                    std::span<const std::byte> previous) noexcept;

 private:
  static constexpr std::size_t kLines = 32;
  static constexpr std::size_t kLineBytes = 64;
  static constexpr std::size_t kMostSamples = kLines * kLineBytes / 2;

  template <class Word>
  [[nodiscard]] PlaneEntropy sample_words(std::span<const std::byte> chunk,
                                          std::span<const std::byte> previous) noexcept;

  std::array<std::array<std::uint16_t, 256>, kMostPlanes> counts_{};
  // What one more occurrence adds to sum(c * log2(c)), in 2^-16: no pass over the counts is needed at the end.
  std::array<std::int32_t, kMostSamples> growth_{};
};

}  // namespace ckpt::codec
