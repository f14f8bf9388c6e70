// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/codec/huffman/huffman_writer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <new>

namespace ckpt::codec {
namespace {

constexpr std::size_t kMaxBlockBytes = std::size_t{128} << 10;
static_assert(kMaxBlockBytes <= kMaxCounted);
constexpr std::size_t kFrameHeader = 2, kBlockHeader = 3;
constexpr unsigned kMinWindowLog = 10;
enum BlockKind : unsigned { kStored = 0, kSame = 1, kPacked = 2 };
constexpr unsigned kWithCode = 2, kWithCodeAsBefore = 3;
constexpr std::size_t kStreams = 4;
constexpr std::size_t kStreamLengths = (kStreams - 1) * 2;
// Behind the literals stands how many matches there are.
constexpr std::byte kNoMatches{0};

// How many bytes the header of literals takes, less two, which is also its own code.
constexpr unsigned form_of(std::size_t plain) noexcept {
  return plain < 1 << 10 ? 1 : plain < 1 << 14 ? 2 : 3;
}

void put_number(std::uint64_t value, std::size_t bytes, std::byte* out) noexcept {
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(value >> (8 * i));
}

void put_literals_header(unsigned kind, std::size_t plain, std::size_t packed, std::byte* out) noexcept {
  const unsigned form = form_of(plain), width = form == 1 ? 10 : form == 2 ? 14 : 18;
  const std::uint64_t header =
      kind | form << 2 | std::uint64_t{plain} << 4 | std::uint64_t{packed} << (4 + width);
  put_number(header, form + 2, out);
}

void put_block_header(bool last, BlockKind kind, std::size_t bytes, std::byte* out) noexcept {
  put_number(bytes << 3 | kind << 1 | (last ? 1 : 0), kBlockHeader, out);
}

}  // namespace

Result<std::unique_ptr<HuffmanWriter>> HuffmanWriter::create() {
  std::unique_ptr<HuffmanWriter> writer(new (std::nothrow) HuffmanWriter);
  if (!writer) return Error(ErrorCode::kOutOfMemory, "No memory for a codec's Huffman code");
  return writer;
}

std::size_t HuffmanWriter::packed_size(const SymbolCounts& counts, const CodeLengths& lengths) noexcept {
  std::uint64_t bits = 0, missing = 0;
  for (std::size_t s = 0; s < kSymbols; ++s) {
    bits += std::uint64_t{counts[s]} * lengths.bits[s];
    missing |= lengths.bits[s] == 0 ? counts[s] : 0;
  }
  return missing == 0 ? bits / 8 : SIZE_MAX;
}

std::size_t HuffmanWriter::pack_literals(std::span<const std::byte> block,
                                         std::span<std::byte> out) noexcept {
  CodeLengths lengths{};
  make_code_lengths(counts_, lengths);
  const std::size_t described = describe_code_lengths(lengths, description_);
  const std::size_t fresh = described == 0 ? SIZE_MAX : packed_size(counts_, lengths) + described;
  const std::size_t as_before = has_code_ ? packed_size(counts_, lengths_) : SIZE_MAX;
  const bool keep = as_before <= fresh;
  // Each stream ends with a bit of its own, in a byte of its own perhaps.
  const std::size_t most = std::min(fresh, as_before);
  const std::size_t header = form_of(block.size()) + 2;
  constexpr std::size_t kAround = kStreamLengths + kStreams * 2 + sizeof kNoMatches;
  if (most >= block.size() || most + header + kAround >= block.size()) return 0;
  if (most + header + kAround + kStreamSlack > out.size()) return 0;
  std::byte* at = out.data() + header;
  if (!keep) {
    lengths_ = lengths;
    make_code_table(lengths_, table_);
    has_code_ = true;
    std::memcpy(at, description_.data(), described);
    at += described;
  }
  std::byte* const stream_lengths = at;
  at += kStreamLengths;
  const WriteStream write = write_stream();
  const std::size_t part = (block.size() + kStreams - 1) / kStreams;
  for (std::size_t i = 0; i < kStreams; ++i) {
    const auto run = i + 1 < kStreams ? block.subspan(i * part, part) : block.subspan(i * part);
    const std::size_t bytes = write(table_, run, at);
    if (i + 1 < kStreams) put_number(bytes, 2, stream_lengths + i * 2);
    at += bytes;
  }
  const auto packed = static_cast<std::size_t>(at - out.data()) - header;
  put_literals_header(keep ? kWithCodeAsBefore : kWithCode, block.size(), packed, out.data());
  *at++ = kNoMatches;
  return static_cast<std::size_t>(at - out.data());
}

std::optional<std::size_t> HuffmanWriter::pack(std::span<const std::byte> plane,
                                               std::span<std::byte> out) noexcept {
  if (plane.size() < kMinBytes || out.size() < kFrameHeader) return std::nullopt;
  has_code_ = false;
  // A window as long as the longest block.
  const auto window = std::max(
      kMinWindowLog, static_cast<unsigned>(std::bit_width(std::min(plane.size(), kMaxBlockBytes) - 1)));
  put_number((window - kMinWindowLog) << 3 << 8, kFrameHeader, out.data());
  std::size_t used = kFrameHeader;
  while (!plane.empty()) {
    const auto block = plane.first(std::min(plane.size(), kMaxBlockBytes));
    plane = plane.subspan(block.size());
    if (out.size() - used < kBlockHeader + 1) return std::nullopt;
    std::byte* const header = out.data() + used;
    const auto room = out.subspan(used + kBlockHeader);
    count_symbols(block, counts_);
    const bool same = counts_[std::to_integer<std::size_t>(block.front())] == block.size();
    const std::size_t packed = same || block.size() < kMinBytes ? 0 : pack_literals(block, room);
    if (same) {
      room.front() = block.front();
      put_block_header(plane.empty(), kSame, block.size(), header);
      used += kBlockHeader + 1;
    } else if (packed > 0) {
      put_block_header(plane.empty(), kPacked, packed, header);
      used += kBlockHeader + packed;
    } else {
      if (room.size() < block.size()) return std::nullopt;
      std::memcpy(room.data(), block.data(), block.size());
      put_block_header(plane.empty(), kStored, block.size(), header);
      used += kBlockHeader + block.size();
    }
  }
  return used;
}

}  // namespace ckpt::codec
