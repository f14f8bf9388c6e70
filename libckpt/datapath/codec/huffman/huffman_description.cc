// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/codec/huffman/huffman_description.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

namespace ckpt::codec {
namespace {

constexpr std::size_t kWeightValues = kMaxCodeBits + 1;
// A header above it: weights of 4 bits each, so many fewer.
constexpr std::size_t kDirect = 127;
constexpr std::size_t kMaxDirect = 128;
// Shares are of 2^6, which is the most that may be.
constexpr unsigned kAccuracy = 6, kMinAccuracy = 5;
constexpr unsigned kStates = 1U << kAccuracy;
// Two states of an FSE stream start with a weight each.
constexpr std::size_t kMinPacked = 3;

struct Weights {
  std::array<std::uint8_t, kSymbols> value{};  // zero from `count` on
  std::size_t count = 0;                       // the last one follows from the others, and is not among them
};

Weights weights_of(const CodeLengths& lengths) noexcept {
  const unsigned depth = *std::max_element(lengths.bits.begin(), lengths.bits.end());
  Weights weights;
  for (std::size_t s = 0; s < kSymbols; ++s) {
    const unsigned bits = lengths.bits[s];
    if (bits == 0) continue;
    weights.value[s] = static_cast<std::uint8_t>(depth + 1 - bits);
    weights.count = s;
  }
  weights.value[weights.count] = 0;
  return weights;
}

// Bits from the lowest of each byte on. What does not fit is left out, and size() is larger than the buffer.
class BitWriter {
 public:
  explicit BitWriter(std::span<std::byte> room) noexcept : room_(room) {}
  void put(unsigned value, unsigned bits) noexcept {
    bits_ |= std::uint64_t{value & ((1U << bits) - 1)} << count_;
    for (count_ += bits; count_ >= 8; count_ -= 8) flush();
  }
  void align() noexcept {
    if (count_ > 0) flush();
    count_ = 0;
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  void flush() noexcept {
    if (size_ < room_.size()) room_[size_] = static_cast<std::byte>(bits_);
    ++size_;
    bits_ >>= 8;
  }
  std::span<std::byte> room_;
  std::size_t size_ = 0;
  std::uint64_t bits_ = 0;
  unsigned count_ = 0;
};

using Shares = std::array<unsigned, kWeightValues>;

// How often each weight occurs, of kStates; at least once if it does at all.
Shares shares_of(const Weights& weights) noexcept {
  std::array<unsigned, kWeightValues> counts{};
  for (std::size_t i = 0; i < weights.count; ++i) ++counts[weights.value[i]];
  Shares shares{};
  unsigned sum = 0;
  for (std::size_t value = 0; value < kWeightValues; ++value) {
    if (counts[value] == 0) continue;
    const auto all = static_cast<unsigned>(weights.count);
    shares[value] = std::max(1U, (counts[value] * kStates + all / 2) / all);
    sum += shares[value];
  }
  // Rounding is made up for where it weighs least.
  for (; sum < kStates; ++sum) ++*std::max_element(shares.begin(), shares.end());
  for (; sum > kStates; --sum) --*std::max_element(shares.begin(), shares.end());
  return shares;
}

void put_shares(const Shares& shares, BitWriter& out) noexcept {
  out.put(kAccuracy - kMinAccuracy, 4);
  unsigned left = kStates;
  for (std::size_t value = 0; left > 0; ++value) {
    // Numbers from 0 to left + 1: those that are left over in the last power of two take one bit less.
    const auto width = static_cast<unsigned>(std::bit_width(left + 1));
    // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): `left` is positive, so `width` is at least 2
    const unsigned half = 1U << (width - 1), short_ones = 2 * half - 2 - left;
    const unsigned number = shares[value] + 1;
    if (number < short_ones) {
      out.put(number, width - 1);
    } else {
      out.put(number < half ? number : number + short_ones, width);
    }
    left -= shares[value];
    if (shares[value] != 0) continue;
    // How many more there are of them, in threes.
    unsigned skip = 0;
    while (shares[value + 1 + skip] == 0) ++skip;
    value += skip;
    for (; skip >= 3; skip -= 3) out.put(3, 2);
    out.put(skip, 2);
  }
  out.align();
}

// Where a state goes that is to say a weight: `bits` of it are written, what is left picks the next one.
struct Coding {
  std::uint32_t bits = 0;  // of a state, once it is added and cut to what is above 16 bits
  int first = 0;           // among next states, less what picks
};
class StateTable {
 public:
  explicit StateTable(const Shares& shares) noexcept {
    constexpr unsigned kStep = kStates / 2 + kStates / 8 + 3;
    std::array<std::uint8_t, kStates> weight_at{};
    std::array<unsigned, kWeightValues> next{};
    unsigned place = 0, total = 0;
    for (std::size_t value = 0; value < kWeightValues; ++value) {
      const unsigned share = shares[value];
      for (unsigned i = 0; i < share; ++i, place = (place + kStep) % kStates)
        weight_at[place] = static_cast<std::uint8_t>(value);
      next[value] = total;
      if (share == 0) continue;
      const unsigned most =
          share == 1 ? kAccuracy : kAccuracy + 1 - static_cast<unsigned>(std::bit_width(share - 1));
      codings_[value] = {(most << 16) - (share << most), static_cast<int>(total) - static_cast<int>(share)};
      total += share;
    }
    for (unsigned i = 0; i < kStates; ++i)
      states_[next[weight_at[i]]++] = static_cast<std::uint8_t>(kStates + i);
  }
  // A state to start from, which gives a weight without any bits.
  [[nodiscard]] unsigned start(std::uint8_t weight) const noexcept {
    const Coding& coding = codings_[weight];
    const unsigned bits = (coding.bits + (1U << 15)) >> 16;
    return follow(((bits << 16) - coding.bits) >> bits, coding);
  }
  void step(unsigned& state, std::uint8_t weight, BitWriter& out) const noexcept {
    const Coding& coding = codings_[weight];
    const unsigned bits = (state + coding.bits) >> 16;
    out.put(state, bits);
    state = follow(state >> bits, coding);
  }

 private:
  [[nodiscard]] unsigned follow(unsigned pick, const Coding& coding) const noexcept {
    return states_[static_cast<unsigned>(static_cast<int>(pick) + coding.first)];
  }
  std::array<Coding, kWeightValues> codings_{};
  std::array<std::uint8_t, kStates> states_{};
};

// Backwards, two states in turns, as they are read forwards.
void put_weights(const Weights& weights, const StateTable& table, BitWriter& out) noexcept {
  std::size_t i = weights.count;
  std::array<unsigned, 2> states{};  // that of the weights with even numbers first
  states[(i - 1) % 2] = table.start(weights.value[i - 1]);
  states[(i - 2) % 2] = table.start(weights.value[i - 2]);
  for (i -= 2; i-- > 0;) table.step(states[i % 2], weights.value[i], out);
  out.put(states[1], kAccuracy);
  out.put(states[0], kAccuracy);
  out.put(1, 1);
  out.align();
}

std::size_t pack(const Weights& weights, std::span<std::byte> out) noexcept {
  const auto first = weights.value.begin(), last = first + static_cast<std::ptrdiff_t>(weights.count);
  if (weights.count < kMinPacked || std::all_of(first, last, [&](auto value) { return value == *first; }))
    return 0;
  const Shares shares = shares_of(weights);
  BitWriter writer(out);
  put_shares(shares, writer);
  put_weights(weights, StateTable(shares), writer);
  return writer.size() <= out.size() ? writer.size() : 0;
}

}  // namespace

std::size_t describe_code_lengths(const CodeLengths& lengths, CodeDescription& out) noexcept {
  const Weights weights = weights_of(lengths);
  const std::size_t packed = pack(weights, std::span(out).subspan(1));
  const std::size_t direct = (weights.count + 1) / 2;
  if (packed > 0 && (packed < direct || weights.count > kMaxDirect)) {
    out[0] = static_cast<std::byte>(packed);
    return 1 + packed;
  }
  if (weights.count > kMaxDirect) return 0;
  out[0] = static_cast<std::byte>(kDirect + weights.count);
  for (std::size_t i = 0; i < weights.count; i += 2)
    out[1 + i / 2] = static_cast<std::byte>(weights.value[i] << 4 | weights.value[i + 1]);
  return 1 + direct;
}

}  // namespace ckpt::codec
