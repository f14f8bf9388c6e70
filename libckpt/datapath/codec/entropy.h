// SPDX-License-Identifier: Apache-2.0
// The entropy of a chunk's byte planes, from 512 sampled elements. The elements are read in runs of one cache
// line at distributed places, so that a chunk outside the cache causes few misses. The entropy separates a
// plane of noise from a plane that shrinks. The estimate is corrected for its small sample (Miller and
// Madow). Without the correction, 512 samples of noise would appear to have 7.6 bits.
//
// Cost: about a microsecond for one width, two for both, whatever the chunk's length. Counting does not wait
// for memory once the samples are loaded. Meanwhile the chunk (or `previous`, if given) is prefetched into
// the cache for encoding.
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
  // Returns the entropy of each plane that split() would make from elements of `width` bytes (2 or 4).
  // `chunk` has at least one element; `previous` is empty or has the same length.
  [[nodiscard]] PlaneEntropy sample(std::size_t width, std::span<const std::byte> chunk,
                                    std::span<const std::byte> previous) noexcept;
  struct Both {
    PlaneEntropy halves, words;  // the entropies for elements of 2 and of 4 bytes
  };
  // Returns the entropy of plain planes, for both widths at once; `chunk` has at least 4 bytes. The lowest
  // bit of the halves' lower planes differs from that of split(): it is the other half's sign or a bit of its
  // neighbor. For the entropy, that bit is equivalent.
  [[nodiscard]] Both sample_both(std::span<const std::byte> chunk) noexcept;

 private:
  static constexpr std::size_t kRuns = 32;
  static constexpr std::size_t kRunElements = 16;
  static constexpr std::size_t kMaxSamples = kRuns * kRunElements;
  using Counts = std::array<std::uint16_t, 256>;

  // Fills counts_ and returns the number of elements counted.
  template <class Word, bool kDifference>
  std::size_t count(std::span<const std::byte> chunk, std::span<const std::byte> previous) noexcept;
  [[nodiscard]] double bits_of(const Counts& counts, std::size_t samples) const noexcept;

  std::array<Counts, kMaxPlanes> counts_;
  // Counters for every other element. Planes of floats increment the same few counters repeatedly, and each
  // such increment waits for the previous one.
  std::array<Counts, kMaxPlanes> other_counts_;
  std::array<float, 2 * kMaxSamples + 1> weight_{};  // the weight of each count c: c * log2(c), minus the
                                                     // correction
};

}  // namespace ckpt::codec
