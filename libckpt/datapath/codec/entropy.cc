// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/codec/entropy.h"

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

namespace ckpt::codec {
namespace {

// The correction of Miller and Madow: this many bits, divided by the number of samples, for each distinct
// symbol except one.
constexpr double kCorrection = 1 / (2 * std::numbers::ln2);

template <class Word>
Word word_at(std::span<const std::byte> bytes, std::size_t index) noexcept {
  Word value;
  std::memcpy(&value, bytes.data() + index * sizeof(Word), sizeof value);
  return value;
}

// Prefetches a share of the bytes that the next encoder of the chunk reads. All shares together fit into the
// second-level cache.
void prefetch_share(std::span<const std::byte> bytes, std::size_t share, std::size_t shares) noexcept {
  constexpr std::size_t kMaxAhead = std::size_t{64} << 10;
  constexpr std::size_t kLineBytes = 64;
  const std::size_t length = std::min(bytes.size(), kMaxAhead) / shares;
  for (std::size_t at = share * length; at < (share + 1) * length; at += kLineBytes)
    __builtin_prefetch(bytes.data() + at, 0, 2);
}

}  // namespace

// NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): count() clears the counts that it uses
EntropySampler::EntropySampler() noexcept {
  for (std::size_t count = 1; count < weight_.size(); ++count) {
    const double c = static_cast<double>(count);
    weight_[count] = static_cast<float>(c * std::log2(c) - kCorrection);
  }
}

template <class Word, bool kDifference>
std::size_t EntropySampler::count(std::span<const std::byte> chunk,
                                  std::span<const std::byte> previous) noexcept {
  const std::size_t words = chunk.size() / sizeof(Word);
  const std::size_t runs = std::clamp<std::size_t>(words / kRunElements, 1, kRuns);
  const std::size_t run = std::min(words, kRunElements);
  const std::size_t apart = words / runs;
  for (std::size_t p = 0; p < sizeof(Word); ++p) {
    counts_[p].fill(0);
    other_counts_[p].fill(0);
  }
  const auto add = [&](auto& counts, std::size_t i) {
    Word value = word_at<Word>(chunk, i);
    if constexpr (kDifference) {
      value = difference(value, word_at<Word>(previous, i));
    } else {
      value = rotated(value);
    }
#pragma GCC unroll 4
    for (std::size_t p = 0; p < sizeof(Word); ++p) ++counts[p][static_cast<std::uint8_t>(value >> (8 * p))];
  };
  // The distance between runs is not a power of two, because a row's length may be one.
  const std::size_t slack = (apart - run) / kRunElements;
  const auto first_of = [&](std::size_t r) {
    return r * apart + (slack > 0 ? r * 0x9e3779b1U % slack * kRunElements : 0);
  };
  // All of these lines are prefetched before the first is counted.
  for (std::size_t r = 0; r < runs; ++r) {
    _mm_prefetch(reinterpret_cast<const char*>(chunk.data()) + first_of(r) * sizeof(Word), _MM_HINT_T0);
    if constexpr (kDifference) {
      _mm_prefetch(reinterpret_cast<const char*>(previous.data()) + first_of(r) * sizeof(Word), _MM_HINT_T0);
    }
  }
  for (std::size_t r = 0; r < runs; ++r) {
    const std::size_t first = first_of(r);
    prefetch_share(kDifference ? previous : chunk, r, runs);
    std::size_t i = first;
    for (; i + 2 <= first + run; i += 2) {
      add(counts_, i);
      add(other_counts_, i + 1);
    }
    if (i < first + run) add(counts_, i);
  }
  for (std::size_t p = 0; p < sizeof(Word); ++p) {
    for (std::size_t b = 0; b < 256; ++b) {
      counts_[p][b] = static_cast<std::uint16_t>(counts_[p][b] + other_counts_[p][b]);
    }
  }
  return runs * run;
}

double EntropySampler::bits_of(const Counts& counts, std::size_t samples) const noexcept {
  std::array<float, 4> sum{};  // separate sums, so that additions do not depend on one another
  for (std::size_t b = 0; b < 256; b += 4) {
    for (std::size_t lane = 0; lane < 4; ++lane) sum[lane] += weight_[counts[b + lane]];
  }
  const double n = static_cast<double>(samples);
  const double all = static_cast<double>(sum[0]) + sum[1] + sum[2] + sum[3];
  return std::clamp(std::log2(n) - (all + kCorrection) / n, 0.0, 8.0);
}

PlaneEntropy EntropySampler::sample(std::size_t width, std::span<const std::byte> chunk,
                                    std::span<const std::byte> previous) noexcept {
  const bool plain = previous.empty();
  const std::size_t samples =
      width == 2
          ? (plain ? count<std::uint16_t, false>(chunk, {}) : count<std::uint16_t, true>(chunk, previous))
          : (plain ? count<std::uint32_t, false>(chunk, {}) : count<std::uint32_t, true>(chunk, previous));
  PlaneEntropy entropy{};
  for (std::size_t p = 0; p < width; ++p) entropy[p] = bits_of(counts_[p], samples);
  return entropy;
}

EntropySampler::Both EntropySampler::sample_both(std::span<const std::byte> chunk) noexcept {
  Both both{};
  const std::size_t samples = count<std::uint32_t, false>(chunk, {});
  for (std::size_t p = 0; p < 4; ++p) both.words[p] = bits_of(counts_[p], samples);
  for (std::size_t p = 0; p < 2; ++p) {
    for (std::size_t b = 0; b < 256; ++b) {
      counts_[p][b] = static_cast<std::uint16_t>(counts_[p][b] + counts_[p + 2][b]);
    }
    both.halves[p] = bits_of(counts_[p], samples * 2);
  }
  return both;
}

}  // namespace ckpt::codec
