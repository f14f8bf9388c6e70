// SPDX-License-Identifier: Apache-2.0
#include "libckpt/codec/huffman_frame.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <new>

namespace ckpt::codec {
namespace {

constexpr std::size_t kStreams = 4;
constexpr std::size_t kMostBlockBytes = std::size_t{128} << 10;
constexpr unsigned kIndexShift = 64 - kMostCodeBits;
// Bits that there are after loading, at least, and the bytes that it loads at most.
constexpr std::uint64_t kLoaded = 56;
constexpr std::size_t kMostLoaded = 7;

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

// What one look-up says (huffman_table.h), read part by part: shifting is what the loop below has least room for.
struct Entry {
  std::array<std::byte, HuffmanTable::kMostSymbols> symbols;
  std::uint8_t count, bits;
};
static_assert(sizeof(Entry) == sizeof(std::uint64_t));

const Entry* entries_of(const HuffmanTable& table) noexcept {
  return reinterpret_cast<const Entry*>(table.entries());
}
// Writes 8 bytes.
void put(std::byte* out, const Entry& entry) noexcept {
  std::memcpy(out, &entry, sizeof entry);
}

// How many loadings of so many look-ups are safe whatever the bits are.
template <std::size_t kLookups>
std::size_t safe_turns(const Stream& stream) noexcept {
  constexpr std::size_t kMostGiven = kLookups * HuffmanTable::kMostSymbols;
  constexpr std::size_t kRoom = kMostGiven - HuffmanTable::kMostSymbols + sizeof(Entry);
  const auto room = static_cast<std::size_t>(stream.end - stream.out);
  const auto input = static_cast<std::size_t>(stream.at - stream.start);
  if (room < kRoom || input < sizeof(std::uint64_t)) return 0;
  return std::min((room - kRoom) / kMostGiven, (input - sizeof(std::uint64_t)) / kMostLoaded) + 1;
}

[[gnu::always_inline]] inline void load(std::uint64_t& bits, std::uint64_t& loaded,
                                        const std::byte*& at) noexcept {
  // Where to load from is known before the look-ups that empty `bits`: it does not wait for them.
  bits |= load64(at - 8) >> loaded;
  at -= (63 - loaded) >> 3;
  loaded |= kLoaded;
}

[[gnu::always_inline]] inline void look_up(const Entry* entries, std::uint64_t& bits, std::uint64_t& loaded,
                                           std::byte*& out) noexcept {
  std::uint64_t index = bits >> kIndexShift;
  const std::uint64_t taken = entries[index].bits;
  bits <<= taken & 63;
  loaded -= taken;
  // Now, in its register: the compiler would put off all of them at the cost of memory.
  asm("" : "+r"(loaded));
  // The address is not shared: computing it would come before the load above, which everything waits for.
  asm("" : "+r"(index));
  put(out, entries[index]);
  out += entries[index].count;
}

// So many loadings and their look-ups, all streams in step. Kept in registers, hence one variable each.
template <std::size_t kLookups>
[[gnu::target("bmi,bmi2")]] void run(std::array<Stream, kStreams>& streams, const Entry* entries,
                                     std::size_t turns) noexcept {
  static_assert(kLookups * kMostCodeBits <= kLoaded);
  auto [start0, at0, bits0, loaded0, out0, end0] = streams[0];
  auto [start1, at1, bits1, loaded1, out1, end1] = streams[1];
  auto [start2, at2, bits2, loaded2, out2, end2] = streams[2];
  auto [start3, at3, bits3, loaded3, out3, end3] = streams[3];
  for (; turns > 0; --turns) {
    load(bits0, loaded0, at0);
    load(bits1, loaded1, at1);
    load(bits2, loaded2, at2);
    load(bits3, loaded3, at3);
#pragma GCC unroll 5
    for (std::size_t i = 0; i < kLookups; ++i) {
      look_up(entries, bits0, loaded0, out0);
      look_up(entries, bits1, loaded1, out1);
      look_up(entries, bits2, loaded2, out2);
      look_up(entries, bits3, loaded3, out3);
    }
  }
  streams = {{{start0, at0, bits0, loaded0, out0, end0},
              {start1, at1, bits1, loaded1, out1, end1},
              {start2, at2, bits2, loaded2, out2, end2},
              {start3, at3, bits3, loaded3, out3, end3}}};
}

// As far as it is safe. Streams do not come to their ends together: in place of one that has, `spare` runs, so that the others
// still go in step.
template <std::size_t kLookups>
void run_all(std::array<Stream, kStreams>& streams, const Entry* entries, const Stream& spare) noexcept {
  for (;;) {
    std::array<Stream, kStreams> running;
    std::array<bool, kStreams> runs{};
    std::size_t turns = SIZE_MAX;
    for (std::size_t i = 0; i < kStreams; ++i) {
      const std::size_t safe = safe_turns<kLookups>(streams[i]);
      runs[i] = safe > 0;
      running[i] = runs[i] ? streams[i] : spare;
      turns = std::min(turns, runs[i] ? safe : safe_turns<kLookups>(spare));
    }
    if (std::none_of(runs.begin(), runs.end(), [](bool one) { return one; })) return;
    run<kLookups>(running, entries, turns);
    for (std::size_t i = 0; i < kStreams; ++i)
      if (runs[i]) streams[i] = running[i];
  }
}

// What comes next in the highest bits, `left` bits before the stream's front; zeroes behind it. kTail bits at least.
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
bool finish(const Stream& stream, const HuffmanTable& table) noexcept {
  const Entry* const entries = entries_of(table);
  std::size_t left = static_cast<std::size_t>(stream.at - stream.start) * 8 + stream.loaded;
  std::byte* out = stream.out;
  while (out != stream.end) {
    std::uint64_t bits = bits_at(stream.start, left);
    for (std::size_t taken = 0; taken <= kTail - kMostCodeBits && out != stream.end;) {
      const Entry& entry = entries[bits >> kIndexShift];
      const bool whole = stream.end - out >= static_cast<std::ptrdiff_t>(sizeof entry) && entry.bits <= left;
      const std::size_t step =
          whole ? entry.bits : table.bits_of(std::to_integer<std::uint8_t>(entry.symbols[0]));
      if (step > left) return false;
      if (whole) {
        put(out, entry);
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

unsigned number_at(std::span<const std::byte> in, std::size_t at) noexcept {
  return std::to_integer<unsigned>(in[at]) | std::to_integer<unsigned>(in[at + 1]) << 8;
}

}  // namespace

bool HuffmanFrames::supported() noexcept {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2");
  return has;
}

Result<std::unique_ptr<HuffmanFrames>> HuffmanFrames::create() {
  std::unique_ptr<HuffmanFrames> frames(new (std::nothrow) HuffmanFrames);
  if (!frames) return Error(ErrorCode::kOutOfMemory, "No memory for a codec's Huffman table");
  return frames;
}

bool HuffmanFrames::decode_streams(std::span<const std::byte> in, std::span<std::byte> out) noexcept {
  constexpr std::size_t kLengths = (kStreams - 1) * 2;
  const std::size_t part = (out.size() + kStreams - 1) / kStreams;
  if (in.size() < kLengths || out.size() < part * (kStreams - 1)) return false;
  std::array<Stream, kStreams> streams;
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
  const auto* const anything = reinterpret_cast<const std::byte*>(table_.entries());
  const Stream spare{anything,      anything + spare_.size(),     0, kLoaded,
                     spare_.data(), spare_.data() + spare_.size()};
  // As many look-ups as one loading of bits is good for; at the end one by one.
  run_all<5>(streams, entries_of(table_), spare);
  run_all<1>(streams, entries_of(table_), spare);
  return std::all_of(streams.begin(), streams.end(),
                     [&](const Stream& stream) { return finish(stream, table_); });
}

bool HuffmanFrames::decode_literals(std::span<const std::byte>& in, std::span<std::byte>& out) noexcept {
  constexpr unsigned kPacked = 2, kPackedAsBefore = 3;
  if (in.size() < 5) return false;
  std::uint64_t header = 0;
  std::memcpy(&header, in.data(), 5);
  // Kind, form, then both lengths: form 0 is a single stream.
  const auto kind = static_cast<unsigned>(header & 3), form = static_cast<unsigned>(header >> 2 & 3);
  if (form == 0 || (kind != kPacked && kind != kPackedAsBefore)) return false;
  const unsigned width = form == 1 ? 10 : form == 2 ? 14 : 18;
  const std::uint64_t mask = (std::uint64_t{1} << width) - 1;
  const std::size_t plain = header >> 4 & mask, packed = header >> (4 + width) & mask;
  const std::size_t header_bytes = form + 2;
  if (plain > std::min(out.size(), kMostBlockBytes) || packed > in.size() - header_bytes) return false;
  auto body = in.subspan(header_bytes, packed);
  if (kind == kPacked) {
    CodeLengths lengths;
    const std::size_t used = read_code_lengths(body, lengths);
    if (used == 0) return false;
    table_.build(lengths);
    has_table_ = true;
    body = body.subspan(used);
  }
  if (!has_table_ || !decode_streams(body, out.first(plain))) return false;
  in = in.subspan(header_bytes + packed);
  out = out.subspan(plain);
  return true;
}

bool HuffmanFrames::decode(std::span<const std::byte> frame, std::span<std::byte> plane) noexcept {
  constexpr std::size_t kFrameHeader = 2, kBlockHeader = 3;
  constexpr unsigned kRaw = 0, kPacked = 2;
  // A window's size, and neither length nor checksum nor dictionary.
  if (frame.size() < kFrameHeader || frame.front() != std::byte{0}) return false;
  has_table_ = false;
  std::span<const std::byte> in = frame.subspan(kFrameHeader);
  std::span<std::byte> out = plane;
  for (bool last = false; !last;) {
    if (in.size() < kBlockHeader) return false;
    const unsigned header = number_at(in, 0) | std::to_integer<unsigned>(in[2]) << 16;
    last = (header & 1) != 0;
    const unsigned kind = header >> 1 & 3;
    const std::size_t bytes = header >> 3;
    in = in.subspan(kBlockHeader);
    if (bytes > in.size()) return false;
    auto block = in.first(bytes);
    in = in.subspan(bytes);
    if (kind == kRaw) {
      if (bytes > std::min(out.size(), kMostBlockBytes)) return false;
      std::copy(block.begin(), block.end(), out.begin());  // of nothing, too, to nowhere
      out = out.subspan(bytes);
      continue;
    }
    // Behind the literals stands how many matches there are.
    if (kind != kPacked || !decode_literals(block, out)) return false;
    if (block.size() != 1 || block.front() != std::byte{0}) return false;
  }
  return in.empty() && out.empty();
}

}  // namespace ckpt::codec
