// SPDX-License-Identifier: Apache-2.0
#include "libckpt/codec/entropy.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

namespace ckpt::codec {
namespace {

constexpr double kOne = 65536;

}  // namespace

EntropySampler::EntropySampler() noexcept {
  const auto weight = [](double count) { return count > 0 ? count * std::log2(count) : 0; };
  for (std::size_t count = 0; count < growth_.size(); ++count) {
    const double c = static_cast<double>(count);
    growth_[count] = static_cast<std::int32_t>(std::lround((weight(c + 1) - weight(c)) * kOne));
  }
  // Each symbol seen adds 1 / (2 n ln 2) bits: the correction.
  growth_[0] = static_cast<std::int32_t>(-kOne / (2 * std::numbers::ln2));
}

template <class Word>
PlaneEntropy EntropySampler::sample_words(std::span<const std::byte> chunk,
                                          std::span<const std::byte> previous) noexcept {
  constexpr std::size_t kWords = kLineBytes / sizeof(Word);
  const std::size_t words = chunk.size() / sizeof(Word);
  const std::size_t lines = std::clamp<std::size_t>(words / kWords, 1, kLines);
  const std::size_t run = std::min(words, kWords);
  PlaneEntropy entropy{};
  if (words == 0) return entropy;
  for (std::size_t p = 0; p < sizeof(Word); ++p) counts_[p].fill(0);
  std::array<std::int64_t, sizeof(Word)> sum{};
  for (std::size_t line = 0; line < lines; ++line) {
    // Spread over the chunk, and off any power-of-two row length.
    std::size_t first = words / lines * line;
    const std::size_t room = words / lines - run;
    if (room > 0) first += (line * 0x9e3779b1U >> 7) % room / kWords * kWords;
    for (std::size_t i = first; i < first + run; ++i) {
      Word value;
      std::memcpy(&value, chunk.data() + i * sizeof(Word), sizeof value);
      if (previous.empty()) {
        value = rotated(value);
      } else {
        Word old;
        std::memcpy(&old, previous.data() + i * sizeof(Word), sizeof old);
        value = difference(value, old);
      }
      for (std::size_t p = 0; p < sizeof(Word); ++p) {
        sum[p] += growth_[counts_[p][static_cast<std::uint8_t>(value >> (8 * p))]++];
      }
    }
  }
  const double samples = static_cast<double>(lines * run);
  for (std::size_t p = 0; p < sizeof(Word); ++p) {
    const double bits = std::log2(samples) - static_cast<double>(sum[p]) / kOne / samples -
                        1 / (2 * samples * std::numbers::ln2);
    entropy[p] = std::clamp(bits, 0.0, 8.0);
  }
  return entropy;
}

PlaneEntropy EntropySampler::sample(std::size_t width, std::span<const std::byte> chunk,
                                    std::span<const std::byte> previous) noexcept {
  return width == 2 ? sample_words<std::uint16_t>(chunk, previous)
                    : sample_words<std::uint32_t>(chunk, previous);
}

}  // namespace ckpt::codec
