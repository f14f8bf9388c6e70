// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/codec/huffman/huffman_bits.h"

#include <cstring>

#include "libckpt/base/intrinsics.h"

namespace ckpt::codec {
namespace {

// So many codes fit beside the bits that a flush leaves.
constexpr std::size_t kFew = 4;
static_assert(kFew * kMaxCodeBits + 7 <= 64);

// Bits on their way out, the first lowest.
struct BitQueue {
  std::byte* out = nullptr;
  std::uint64_t bits = 0;
  std::uint64_t count = 0;  // below 8 after flush()

  [[gnu::always_inline]] void put(std::uint64_t value, std::uint64_t width) noexcept {
    bits |= value << (count & 63);
    count += width;
  }
  [[gnu::always_inline]] void flush() noexcept {
    std::memcpy(out, &bits, sizeof bits);
    out += count >> 3;
    bits >>= count & 56;
    count &= 7;
  }
};

// From the last byte to the first.
[[gnu::always_inline]] inline void put_plainly(const CodeTable& table, std::span<const std::byte> run,
                                               BitQueue& queue) noexcept {
  const auto code_of = [&](std::size_t at) { return table.whole[std::to_integer<std::size_t>(run[at])]; };
  // Numbers of bits are shifted along in the lowest byte, out of what is put.
  static_assert(kFew * kMaxCodeBits + 8 <= 64);
  std::size_t left = run.size();
  for (; left >= kFew; left -= kFew) {
    std::uint64_t codes = 0, width = 0;
#pragma GCC unroll 4
    for (std::size_t i = 1; i <= kFew; ++i) {
      const std::uint64_t code = code_of(left - i);
      codes = codes >> (code & 63) | code;
      width += code;
    }
    width &= 63;
    queue.put(codes >> (64 - width), width);
    queue.flush();
  }
  for (; left > 0; --left) {
    const std::uint64_t code = code_of(left - 1), width = code & 63;
    queue.put(code >> (64 - width), width);
  }
  queue.flush();
}

[[gnu::always_inline]] inline std::size_t finish(BitQueue& queue, const std::byte* start) noexcept {
  queue.put(1, 1);
  queue.flush();
  return static_cast<std::size_t>(queue.out - start) + (queue.count > 0 ? 1 : 0);
}

std::size_t write_plain(const CodeTable& table, std::span<const std::byte> run, std::byte* out) noexcept {
  BitQueue queue{out};
  put_plainly(table, run, queue);
  return finish(queue, out);
}

// The same, compiled for shifts that need not wait for flags.
[[gnu::target("bmi2")]] std::size_t write_bmi2(const CodeTable& table, std::span<const std::byte> run,
                                               std::byte* out) noexcept {
  BitQueue queue{out};
  put_plainly(table, run, queue);
  return finish(queue, out);
}

#define CKPT_VBMI [[gnu::target("avx512f,avx512bw,avx512vbmi,bmi2")]]

// The codes of 64 bytes, in fours, the first byte's highest in each: those with even numbers, then those with
// odd ones; and in eights.
constexpr std::size_t kMany = 64, kEights = kMany / 8;
struct Joined {
  alignas(64) std::array<std::uint64_t, kEights> even, odd, even_widths, odd_widths, eights, eight_widths;
};
// As many bits of an eight as one flush can take.
constexpr std::uint64_t kMaxFlushed = 56;

// A table of 256 bytes in four registers.
struct Lookup {
  __m512i first, second, third, fourth;
};
CKPT_VBMI inline Lookup load(const std::array<std::uint8_t, kSymbols>& table) noexcept {
  const std::uint8_t* const at = table.data();
  return {_mm512_load_si512(at), _mm512_load_si512(at + 64), _mm512_load_si512(at + 128),
          _mm512_load_si512(at + 192)};
}
CKPT_VBMI inline __m512i look_up(const Lookup& table, __m512i index, __mmask64 upper) noexcept {
  const __m512i low = _mm512_permutex2var_epi8(table.first, index, table.second);
  const __m512i high = _mm512_permutex2var_epi8(table.third, index, table.fourth);
  return _mm512_mask_blend_epi8(upper, low, high);
}

// True: each eight fits into one flush.
CKPT_VBMI inline bool join(const Lookup& low, const Lookup& high, __m512i symbols, Joined& out) noexcept {
  const __mmask64 upper = _mm512_movepi8_mask(symbols);
  const __m512i lows = look_up(low, symbols, upper), highs = look_up(high, symbols, upper);
  // The two bytes of each word: the first one is the lower.
  const __m512i first =
      _mm512_or_si512(_mm512_and_si512(lows, _mm512_set1_epi16(0xff)),
                      _mm512_slli_epi16(_mm512_and_si512(highs, _mm512_set1_epi16(0x0f)), 8));
  const __m512i second =
      _mm512_or_si512(_mm512_srli_epi16(lows, 8), _mm512_and_si512(highs, _mm512_set1_epi16(0x0f00)));
  const __m512i first_width = _mm512_and_si512(_mm512_srli_epi16(highs, 4), _mm512_set1_epi16(0x0f));
  const __m512i second_width = _mm512_srli_epi16(highs, 12);
  const __m512i pair_width = _mm512_add_epi16(first_width, second_width);
  // Pairs, those with even numbers and those with odd ones, in double words.
  const __m512i low_word = _mm512_set1_epi32(0xffff);
  const __m512i even = _mm512_or_si512(
      _mm512_sllv_epi32(_mm512_and_si512(first, low_word), _mm512_and_si512(second_width, low_word)),
      _mm512_and_si512(second, low_word));
  const __m512i odd =
      _mm512_or_si512(_mm512_sllv_epi32(_mm512_srli_epi32(first, 16), _mm512_srli_epi32(second_width, 16)),
                      _mm512_srli_epi32(second, 16));
  const __m512i odd_width = _mm512_srli_epi32(pair_width, 16);
  const __m512i four_width = _mm512_add_epi32(_mm512_and_si512(pair_width, low_word), odd_width);
  // And fours in quad words, likewise.
  const __m512i low_half = _mm512_set1_epi64(0xffffffff);
  const __m512i even_four = _mm512_or_si512(
      _mm512_sllv_epi64(_mm512_and_si512(even, low_half), _mm512_and_si512(odd_width, low_half)),
      _mm512_and_si512(odd, low_half));
  const __m512i odd_four =
      _mm512_or_si512(_mm512_sllv_epi64(_mm512_srli_epi64(even, 32), _mm512_srli_epi64(odd_width, 32)),
                      _mm512_srli_epi64(odd, 32));
  const __m512i even_width = _mm512_and_si512(four_width, low_half),
                odd_four_width = _mm512_srli_epi64(four_width, 32);
  const __m512i eight_width = _mm512_add_epi64(even_width, odd_four_width);
  _mm512_store_si512(out.eights.data(),
                     _mm512_or_si512(_mm512_sllv_epi64(even_four, odd_four_width), odd_four));
  _mm512_store_si512(out.eight_widths.data(), eight_width);
  if (_mm512_cmpgt_epu64_mask(eight_width, _mm512_set1_epi64(kMaxFlushed)) == 0) return true;
  _mm512_store_si512(out.even.data(), even_four);
  _mm512_store_si512(out.odd.data(), odd_four);
  _mm512_store_si512(out.even_widths.data(), even_width);
  _mm512_store_si512(out.odd_widths.data(), odd_four_width);
  return false;
}

CKPT_VBMI inline void put_joined(const Joined& some, bool as_eights, BitQueue& queue) noexcept {
  if (as_eights) {
#pragma GCC unroll 8
    for (std::size_t i = kEights; i-- > 0;) {
      queue.put(some.eights[i], some.eight_widths[i]);
      queue.flush();
    }
  } else {
#pragma GCC unroll 8
    for (std::size_t i = kEights; i-- > 0;) {
      queue.put(some.odd[i], some.odd_widths[i]);
      queue.flush();
      queue.put(some.even[i], some.even_widths[i]);
      queue.flush();
    }
  }
}

CKPT_VBMI std::size_t write_vbmi(const CodeTable& table, std::span<const std::byte> run,
                                 std::byte* out) noexcept {
  const Lookup low = load(table.low), high = load(table.high);
  BitQueue queue{out};
  std::size_t left = run.size();
  if (left >= kMany) {
    // One is put while the next is joined.
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): join() writes all of what is read
    std::array<Joined, 2> some;
    std::size_t turn = 0;
    bool as_eights = join(low, high, _mm512_loadu_si512(run.data() + (left -= kMany)), some[0]);
    for (; left >= kMany; turn ^= 1) {
      const bool next = join(low, high, _mm512_loadu_si512(run.data() + (left -= kMany)), some[turn ^ 1]);
      asm("" : "+m"(some));
      put_joined(some[turn], as_eights, queue);
      as_eights = next;
    }
    put_joined(some[turn], as_eights, queue);
  }
  put_plainly(table, run.first(left), queue);
  return finish(queue, out);
}

}  // namespace

void make_code_table(const CodeLengths& lengths, CodeTable& table) noexcept {
  std::array<unsigned, kMaxCodeBits + 1> count{}, next{};
  for (const std::uint8_t bits : lengths.bits) ++count[bits];
  // Longest codes first, from zero on.
  unsigned code = 0;
  for (unsigned bits = kMaxCodeBits; bits > 0; --bits) {
    next[bits] = code;
    code = (code + count[bits]) >> 1;
  }
  for (std::size_t s = 0; s < kSymbols; ++s) {
    const unsigned bits = lengths.bits[s];
    const unsigned value = bits == 0 ? 0 : next[bits]++;
    table.low[s] = static_cast<std::uint8_t>(value);
    table.high[s] = static_cast<std::uint8_t>(value >> 8 | bits << CodeTable::kLengthShift);
    table.whole[s] = bits == 0 ? 0 : std::uint64_t{value} << (64 - bits) | bits;
  }
}

WriteStream write_stream() noexcept {
  const auto pick = [] {
    if (!__builtin_cpu_supports("bmi2")) return write_plain;
    return __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512bw") ? write_vbmi
                                                                                      : write_bmi2;
  };
  static const WriteStream fastest = pick();
  return fastest;
}

WriteStream write_stream_plainly() noexcept {
  return write_plain;
}

}  // namespace ckpt::codec
