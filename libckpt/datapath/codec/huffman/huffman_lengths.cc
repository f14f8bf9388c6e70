// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/codec/huffman/huffman_lengths.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

namespace ckpt::codec {
namespace {

constexpr unsigned kMinAccuracy = 5, kMaxAccuracy = 6;
constexpr std::size_t kMaxStates = 1 << kMaxAccuracy;
// Weights are 0 to kMaxCodeBits.
constexpr std::size_t kWeightValues = kMaxCodeBits + 1;
constexpr std::size_t kMaxWeights = kSymbols - 1;  // the last one follows from the others
constexpr unsigned kDirect = 127;                  // a header above it: so many fewer weights of 4 bits each

struct Weights {
  std::array<std::uint8_t, kSymbols + 2> value{};  // space for one turn too many; zero from `count` on
  std::size_t count = 0;
  unsigned sum = 0;  // of their shares of the tree
};
constexpr unsigned share_of(unsigned weight) noexcept {
  return (1U << weight) >> 1;
}

// How often each weight occurs, of 2^accuracy; -1 is less than once.
struct Shares {
  std::array<int, kWeightValues> of{};
  unsigned accuracy = 0;
};

struct State {
  std::uint8_t weight, bits, base;
};
using States = std::array<State, kMaxStates>;

// The description, with zeroes around it: a read beyond finds no bits.
constexpr std::size_t kPadding = 8;
using Padded = std::array<std::byte, kPadding + kDirect + kPadding>;

template <class Word>
Word load(const std::byte* at) noexcept {
  Word value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// At least 25 bits from bit `at` on, lowest first.
unsigned bits_at(const Padded& in, std::size_t at) noexcept {
  return load<std::uint32_t>(in.data() + kPadding + at / 8) >> (at % 8);
}

// Bytes used; 0 if this is none.
std::size_t read_shares(const Padded& in, std::size_t bytes, Shares& shares) noexcept {
  shares.accuracy = (bits_at(in, 0) & 15) + kMinAccuracy;
  if (shares.accuracy > kMaxAccuracy) return 0;
  std::size_t at = 4;
  int left = 1 << shares.accuracy;
  for (std::size_t value = 0; left > 0;) {
    if (value == kWeightValues || at > bytes * 8) return 0;
    // Numbers from 0 to left + 1: those that are left over in the last power of two take one bit less.
    const unsigned width = static_cast<unsigned>(std::bit_width(static_cast<unsigned>(left) + 1));
    const unsigned half = 1U << (width - 1), short_ones = 2 * half - 2 - static_cast<unsigned>(left);
    unsigned number = bits_at(in, at) & (half - 1);
    at += width - 1;
    if (number >= short_ones) {
      number = bits_at(in, at - (width - 1)) & (2 * half - 1);
      if (number >= half) number -= short_ones;
      ++at;
    }
    const int share = static_cast<int>(number) - 1;
    left -= std::abs(share);
    shares.of[value++] = share;
    for (unsigned skip = share == 0 ? 3 : 0; skip == 3;) {
      skip = bits_at(in, at) & 3;
      at += 2;
      value += skip;
      if (value > kWeightValues || at > bytes * 8) return 0;
    }
  }
  const std::size_t used = (at + 7) / 8;
  return left == 0 && used < bytes ? used : 0;
}

// False if the shares do not fill the table, which read_shares() has seen to.
bool make_states(const Shares& shares, States& states) noexcept {
  const unsigned size = 1U << shares.accuracy;
  std::array<std::uint8_t, kWeightValues> next{};
  unsigned end = size;  // of those that share
  for (std::size_t value = 0; value < kWeightValues; ++value) {
    next[value] = static_cast<std::uint8_t>(std::abs(shares.of[value]));
    if (shares.of[value] == -1) states[--end].weight = static_cast<std::uint8_t>(value);
  }
  const unsigned step = size / 2 + size / 8 + 3;
  unsigned place = 0;
  for (std::size_t value = 0; value < kWeightValues; ++value) {
    for (int i = 0; i < shares.of[value]; ++i) {
      states[place].weight = static_cast<std::uint8_t>(value);
      do place = (place + step) & (size - 1);
      while (place >= end);
    }
  }
  for (unsigned i = 0; i < size; ++i) {
    const unsigned follower = next[states[i].weight]++;
    states[i].bits = static_cast<std::uint8_t>(shares.accuracy + 1 - std::bit_width(follower));
    states[i].base = static_cast<std::uint8_t>((follower << states[i].bits) - size);
  }
  return place == 0;
}

// A stream that is read from its end to its front; zeroes before the front.
class BackwardBits {
 public:
  static constexpr unsigned kLoaded = 56;
  // `end`: where the stream ends among zeroes; behind the highest bit of its last byte there is nothing.
  BackwardBits(const std::byte* front, const std::byte* end) noexcept
      : front_(front),
        left_((end - front - 1) * 8 + std::bit_width(std::to_integer<unsigned>(end[-1])) - 1) {}
  // So many bits can be taken now.
  void load() noexcept {
    const std::ptrdiff_t bytes = (left_ + 7) / 8;
    next_ = ckpt::codec::load<std::uint64_t>(front_ + bytes - 8) << (bytes * 8 - left_);
  }
  unsigned take(unsigned bits) noexcept {
    const auto value = static_cast<unsigned>(next_ >> 1 >> (63 - bits));
    next_ <<= bits;
    left_ -= static_cast<std::ptrdiff_t>(bits);
    return value;
  }
  [[nodiscard]] bool overdrawn() const noexcept { return left_ < 0; }

 private:
  const std::byte* front_;
  std::ptrdiff_t left_;  // bits
  std::uint64_t next_ = 0;
};

bool read_coded(std::span<const std::byte> in, Weights& weights) noexcept {
  Padded padded{};
  std::memcpy(padded.data() + kPadding, in.data(), in.size());
  Shares shares;
  States states;
  const std::size_t used = read_shares(padded, in.size(), shares);
  if (used == 0 || in.back() == std::byte{0} || !make_states(shares, states)) return false;
  std::memset(padded.data() + kPadding, 0, used);
  BackwardBits bits(padded.data() + kPadding + used, padded.data() + kPadding + in.size());
  // Two states take turns; the one that finds nothing left lets the other finish.
  bits.load();
  unsigned first = bits.take(shares.accuracy), second = bits.take(shares.accuracy);
  if (bits.overdrawn()) return false;
  std::uint8_t* out = weights.value.data();
  const auto step = [&](unsigned& state, unsigned other) {
    const State now = states[state];
    *out++ = now.weight;
    weights.sum += share_of(now.weight);
    state = now.base + bits.take(now.bits);
    if (!bits.overdrawn()) return true;
    *out++ = states[other].weight;
    weights.sum += share_of(states[other].weight);
    return false;
  };
  constexpr unsigned kPairs = BackwardBits::kLoaded / (2 * kMaxAccuracy);
  for (bool more = true; more;) {
    bits.load();
    for (unsigned pair = 0; more && pair < kPairs; ++pair) {
      if (out - weights.value.data() >= static_cast<std::ptrdiff_t>(kMaxWeights)) return false;
      more = step(first, second) && step(second, first);
    }
  }
  weights.count = static_cast<std::size_t>(out - weights.value.data());
  return weights.count <= kMaxWeights;
}

bool read_direct(std::span<const std::byte> in, Weights& weights) noexcept {
  for (std::size_t i = 0; i < weights.count; ++i) {
    const auto pair = std::to_integer<unsigned>(in[i / 2]);
    weights.value[i] = static_cast<std::uint8_t>(i % 2 == 0 ? pair >> 4 : pair & 15);
    if (weights.value[i] > kMaxCodeBits) return false;
    weights.sum += share_of(weights.value[i]);
  }
  return true;
}

// The last weight is what fills the tree.
bool complete(Weights& weights, CodeLengths& lengths) noexcept {
  const auto depth = static_cast<unsigned>(std::bit_width(weights.sum));
  if (weights.sum == 0 || depth > kMaxCodeBits) return false;
  const unsigned rest = (1U << depth) - weights.sum;
  if (!std::has_single_bit(rest)) return false;
  weights.value[weights.count] = static_cast<std::uint8_t>(std::bit_width(rest));
  for (std::size_t i = 0; i < kSymbols; ++i) {
    const std::uint8_t weight = weights.value[i];
    lengths.bits[i] = static_cast<std::uint8_t>(weight == 0 ? 0 : depth + 1 - weight);
  }
  return true;
}

}  // namespace

std::size_t read_code_lengths(std::span<const std::byte> in, CodeLengths& lengths) noexcept {
  if (in.empty()) return 0;
  const auto header = std::to_integer<unsigned>(in.front());
  const bool direct = header > kDirect;
  Weights weights;
  if (direct) weights.count = header - kDirect;
  const std::size_t bytes = direct ? (weights.count + 1) / 2 : header;
  if (bytes == 0 || bytes > in.size() - 1) return 0;
  const auto body = in.subspan(1, bytes);
  if (!(direct ? read_direct(body, weights) : read_coded(body, weights))) return 0;
  return complete(weights, lengths) ? 1 + bytes : 0;
}

}  // namespace ckpt::codec
