// SPDX-License-Identifier: Apache-2.0
// The entropy of a chunk's byte planes, from 512 sampled elements. They are read in runs of a cache line at
// spread places, so that a chunk outside the cache costs few misses. That separates a plane of noise from one
// that shrinks. The estimate is corrected for its small sample (Miller and Madow), else 512 samples of noise
// would look like 7.6 bits.
//
// Cost: about a microsecond for one width, two for both, whatever the chunk's length. Counting does not wait
// for memory once the samples are there. Meanwhile the chunk (with `previous`: that) is fetched into the
// cache, for encoding.
// Threads: an object belongs to one thread at a time. No function fails. Entropy is in bits per byte.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "libckpt/datapath/codec/planes.h"

namespace ckpt::codec {

using PlaneEntropy = std::array<double, kMaxPlanes>;

class EntropySampler {
 public:
  EntropySampler() noexcept;
  // The entropy of each plane that split() would make of elements of `width` bytes (2 or 4). `chunk` has at
  // least one element; `previous` is empty or as long.
  [[nodiscard]] PlaneEntropy sample(std::size_t width, std::span<const std::byte> chunk,
                                    std::span<const std::byte> previous) noexcept;
  struct Both {
    PlaneEntropy halves, words;  // elements of 2 and of 4 bytes
  };
  // The entropy of plain planes, for both widths at once; `chunk` has at least 4 bytes. The lowest bit of the
  // halves' lower planes is not exactly the one of split(). It is the other half's sign or a bit of its
  // neighbour, which serves as well.
  [[nodiscard]] Both sample_both(std::span<const std::byte> chunk) noexcept;

 private:
  static constexpr std::size_t kRuns = 32;
  static constexpr std::size_t kRunElements = 16;
  static constexpr std::size_t kMaxSamples = kRuns * kRunElements;
  using Counts = std::array<std::uint16_t, 256>;

  // Fills counts_; returns the number of elements counted.
  template <class Word, bool kDifference>
  std::size_t count(std::span<const std::byte> chunk, std::span<const std::byte> previous) noexcept;
  [[nodiscard]] double bits_of(const Counts& counts, std::size_t samples) const noexcept;

  std::array<Counts, kMaxPlanes> counts_;
  // Every other element is counted here: planes of floats hit the same few counters over and over, and each
  // such increment waits for the one before.
  std::array<Counts, kMaxPlanes> other_counts_;
  std::array<float, 2 * kMaxSamples + 1> weight_{};  // c * log2(c), less the correction
};

}  // namespace ckpt::codec
