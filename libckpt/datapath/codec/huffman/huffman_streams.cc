// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/codec/huffman/huffman_streams.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "libckpt/datapath/codec/huffman/huffman_pairs.h"
#include "libckpt/datapath/codec/huffman/huffman_table.h"

namespace ckpt::codec {
namespace {

constexpr std::size_t kStreams = 4;
// Bits that there are after loading, at least, and the bytes that it loads at most.
constexpr std::uint64_t kLoaded = 56;
constexpr std::size_t kMaxLoaded = 7;
// What one turn of all streams takes of their bytes, about: for guessing how many turns there will be.
constexpr std::size_t kUsualTurnBytes = 22;

std::uint64_t load64(const std::byte* at) noexcept {
  std::uint64_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// One stream, read from its end to its front.
struct Stream {
  const std::byte* start;
  const std::byte* at;   // below it lies what is not loaded yet
  std::uint64_t bits;    // what is, the next bit highest
  std::uint64_t loaded;  // so many of them; what is below comes from under `at`, or is zero
  std::byte* out;
  std::byte* end;
};

// False if it is too short for it, or has no end.
bool open(std::span<const std::byte> in, std::span<std::byte> out, Stream& stream) noexcept {
  if (in.size() < 8 || in.back() == std::byte{0}) return false;
  const int padding = std::countl_zero(std::to_integer<std::uint8_t>(in.back())) + 1;
  stream.start = in.data();
  stream.at = in.data() + in.size() - 8;
  stream.bits = load64(stream.at) << padding;
  stream.loaded = 64 - static_cast<unsigned>(padding);
  stream.out = out.data();
  stream.end = out.data() + out.size();
  return true;
}

// The result of one look-up, read part by part, since shifts cost the loop below most.
template <class Table>
struct Entry {
  std::array<std::byte, Table::kMaxSymbols> symbols;
  std::uint8_t count, bits;
};

template <class Table>
const Entry<Table>* entries_of(const Table& table) noexcept {
  static_assert(sizeof(Entry<Table>) == sizeof *table.entries());
  return reinterpret_cast<const Entry<Table>*>(table.entries());
}
// Writes a whole entry, whatever it holds.
template <class Table>
void put(std::byte* out, const Entry<Table>& entry) noexcept {
  std::memcpy(out, &entry, sizeof entry);
}
template <class Table>
constexpr unsigned kIndexShift = 64 - Table::kIndexBits;

// How many loadings of so many look-ups are safe whatever the bits are.
template <class Table, std::size_t kLookups>
std::size_t safe_turns(const Stream& stream) noexcept {
  constexpr std::size_t kMaxGiven = kLookups * Table::kMaxSymbols;
  constexpr std::size_t kRoom = kMaxGiven - Table::kMaxSymbols + sizeof(Entry<Table>);
  const auto room = static_cast<std::size_t>(stream.end - stream.out);
  const auto input = static_cast<std::size_t>(stream.at - stream.start);
  if (room < kRoom || input < sizeof(std::uint64_t)) return 0;
  return std::min((room - kRoom) / kMaxGiven, (input - sizeof(std::uint64_t)) / kMaxLoaded) + 1;
}

[[gnu::always_inline]] inline void load(std::uint64_t& bits, std::uint64_t& loaded,
                                        const std::byte*& at) noexcept {
  // Where to load from is known before the look-ups that empty `bits`: it does not wait for them.
  bits |= load64(at - 8) >> loaded;
  at -= (63 - loaded) >> 3;
  loaded |= kLoaded;
}

template <class Table>
[[gnu::always_inline]] inline void look_up(const Entry<Table>* entries, std::uint64_t& bits,
                                           std::uint64_t& loaded, std::byte*& out) noexcept {
  std::uint64_t index = bits >> kIndexShift<Table>;
  const std::uint64_t taken = entries[index].bits;
  bits <<= taken & 63;
  loaded -= taken;
  // Now, in its register: the compiler would put off all of them at the cost of memory.
  asm("" : "+r"(loaded));
  // The address is not shared: computing it would come before the load above, which everything waits for.
  asm("" : "+r"(index));
  put<Table>(out, entries[index]);
  out += entries[index].count;
}

// So many loadings and their look-ups, all streams in step, with so many lines prefetched from `ahead` on
// each time. Kept in registers, hence one variable each.
template <class Table, std::size_t kLookups, std::size_t kLines>
[[gnu::target("bmi,bmi2")]] void run(std::array<Stream, kStreams>& streams, const Entry<Table>* entries,
                                     std::size_t turns, const std::byte* ahead) noexcept {
  static_assert(kLookups * Table::kIndexBits <= kLoaded);
  auto [start0, at0, bits0, loaded0, out0, end0] = streams[0];
  auto [start1, at1, bits1, loaded1, out1, end1] = streams[1];
  auto [start2, at2, bits2, loaded2, out2, end2] = streams[2];
  auto [start3, at3, bits3, loaded3, out3, end3] = streams[3];
  for (; turns > 0; --turns) {
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kLines; ++i) prefetch(ahead + i * PrefetchQueue::kLineBytes);
    ahead += kLines * PrefetchQueue::kLineBytes;
    load(bits0, loaded0, at0);
    load(bits1, loaded1, at1);
    load(bits2, loaded2, at2);
    load(bits3, loaded3, at3);
#pragma GCC unroll 5
    for (std::size_t i = 0; i < kLookups; ++i) {
      look_up<Table>(entries, bits0, loaded0, out0);
      look_up<Table>(entries, bits1, loaded1, out1);
      look_up<Table>(entries, bits2, loaded2, out2);
      look_up<Table>(entries, bits3, loaded3, out3);
    }
  }
  streams = {{{start0, at0, bits0, loaded0, out0, end0},
              {start1, at1, bits1, loaded1, out1, end1},
              {start2, at2, bits2, loaded2, out2, end2},
              {start3, at3, bits3, loaded3, out3, end3}}};
}

// As far as it is safe. Streams do not come to their ends together: in place of one that has, `spare` runs,
// so that the others still go in step.
template <class Table, std::size_t kLookups>
void run_some(std::array<Stream, kStreams>& streams, const Entry<Table>* entries, std::size_t turns,
              std::size_t lines_a_turn, PrefetchQueue& upcoming) noexcept {
  const PrefetchQueue::Piece piece = upcoming.take(turns, lines_a_turn);
  if (piece.turns == 0) return run<Table, kLookups, 0>(streams, entries, turns, nullptr);
  switch (lines_a_turn) {
    case 2:
      return run<Table, kLookups, 2>(streams, entries, piece.turns, piece.at);
    case 4:
      return run<Table, kLookups, 4>(streams, entries, piece.turns, piece.at);
    case 5:
      return run<Table, kLookups, 5>(streams, entries, piece.turns, piece.at);
    case 6:
      return run<Table, kLookups, 6>(streams, entries, piece.turns, piece.at);
    default:
      return run<Table, kLookups, 8>(streams, entries, piece.turns, piece.at);
  }
}

template <class Table, std::size_t kLookups>
void run_all(std::array<Stream, kStreams>& streams, const Entry<Table>* entries, const Stream& spare,
             std::size_t lines_a_turn, PrefetchQueue& upcoming) noexcept {
  for (;;) {
    std::array<Stream, kStreams> running{};
    std::array<bool, kStreams> runs{};
    std::size_t turns = SIZE_MAX;
    for (std::size_t i = 0; i < kStreams; ++i) {
      const std::size_t safe = safe_turns<Table, kLookups>(streams[i]);
      runs[i] = safe > 0;
      running[i] = runs[i] ? streams[i] : spare;
      turns = std::min(turns, runs[i] ? safe : safe_turns<Table, kLookups>(spare));
    }
    if (std::none_of(runs.begin(), runs.end(), [](bool one) { return one; })) return;
    run_some<Table, kLookups>(running, entries, turns, lines_a_turn, upcoming);
    for (std::size_t i = 0; i < kStreams; ++i)
      if (runs[i]) streams[i] = running[i];
  }
}

// What comes next in the highest bits, `left` bits before the stream's front; zeroes behind it. kTail bits at
// least.
constexpr std::size_t kTail = 57;
std::uint64_t bits_at(const std::byte* start, std::size_t left) noexcept {
  const std::size_t bytes = (left + 7) / 8;
  std::uint64_t value = 0;
  if (bytes >= 8) {
    value = load64(start + bytes - 8);
  } else {
    std::memcpy(reinterpret_cast<std::byte*>(&value) + 8 - bytes, start, bytes);
  }
  return value << (bytes * 8 - left);
}

// What is left of a stream, with every step looked at. False unless it ends with its last symbol.
template <class Table>
bool finish(const Stream& stream, const Table& table) noexcept {
  const Entry<Table>* const entries = entries_of(table);
  std::size_t left = static_cast<std::size_t>(stream.at - stream.start) * 8 + stream.loaded;
  std::byte* out = stream.out;
  while (out != stream.end) {
    std::uint64_t bits = bits_at(stream.start, left);
    for (std::size_t taken = 0; taken <= kTail - Table::kIndexBits && out != stream.end;) {
      const Entry<Table>& entry = entries[bits >> kIndexShift<Table>];
      const bool whole = stream.end - out >= static_cast<std::ptrdiff_t>(sizeof entry) && entry.bits <= left;
      const std::size_t step =
          whole ? entry.bits : table.bits_of(std::to_integer<std::uint8_t>(entry.symbols[0]));
      if (step > left) return false;
      if (whole) {
        put<Table>(out, entry);
        out += entry.count;
      } else {
        *out++ = entry.symbols[0];
      }
      bits <<= step;
      left -= step;
      taken += step;
    }
  }
  return left == 0;
}

// Lines spread over all turns: more at once than memory gives would be waited for, and then none come while
// the rest is decoded.
std::size_t lines_a_turn(std::size_t bytes, const PrefetchQueue& upcoming) noexcept {
  const std::size_t lines = upcoming.lines() * kUsualTurnBytes;
  for (const std::size_t some : {2, 4, 5, 6})
    if (lines <= bytes * some) return some;
  return 8;
}

unsigned number_at(std::span<const std::byte> in, std::size_t at) noexcept {
  return std::to_integer<unsigned>(in[at]) | std::to_integer<unsigned>(in[at + 1]) << 8;
}

}  // namespace

template <class Table>
bool decode_streams(const Table& table, std::span<const std::byte> in, std::span<std::byte> out,
                    std::span<std::byte, kSpareBytes> spare_room, PrefetchQueue& upcoming) noexcept {
  constexpr std::size_t kLengths = (kStreams - 1) * 2;
  const std::size_t part = (out.size() + kStreams - 1) / kStreams;
  if (in.size() < kLengths || out.size() < part * (kStreams - 1)) return false;
  std::array<Stream, kStreams> streams{};
  std::span<const std::byte> rest = in.subspan(kLengths);
  for (std::size_t i = 0; i < kStreams; ++i) {
    const bool last = i + 1 == kStreams;
    const std::size_t bytes = last ? rest.size() : number_at(in, i * 2);
    if (bytes > rest.size()) return false;
    const auto place = last ? out.subspan(i * part) : out.subspan(i * part, part);
    if (!open(rest.first(bytes), place, streams[i])) return false;
    rest = rest.subspan(bytes);
  }
  // What the spare stream reads does not matter, nor what it makes of it.
  const auto* const anything = reinterpret_cast<const std::byte*>(table.entries());
  const Stream spare{anything, anything + kSpareBytes, 0,
                     kLoaded,  spare_room.data(),      spare_room.data() + kSpareBytes};
  // As many look-ups as one loading of bits is good for; at the end one by one.
  const std::size_t lines = lines_a_turn(in.size(), upcoming);
  run_all<Table, kLoaded / Table::kIndexBits>(streams, entries_of(table), spare, lines, upcoming);
  run_all<Table, 1>(streams, entries_of(table), spare, lines, upcoming);
  return std::all_of(streams.begin(), streams.end(),
                     [&](const Stream& stream) { return finish(stream, table); });
}

template bool decode_streams(const HuffmanTable&, std::span<const std::byte>, std::span<std::byte>,
                             std::span<std::byte, kSpareBytes>, PrefetchQueue&) noexcept;
template bool decode_streams(const HuffmanPairs&, std::span<const std::byte>, std::span<std::byte>,
                             std::span<std::byte, kSpareBytes>, PrefetchQueue&) noexcept;

}  // namespace ckpt::codec
