// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/codec/huffman/huffman_frame.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>

namespace ckpt::codec {
namespace {

constexpr std::size_t kMaxBlockBytes = std::size_t{128} << 10;

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

void HuffmanFrames::build(const CodeLengths& lengths) noexcept {
  CodeOrder order{};
  sort_codes(lengths, order);
  if (order.shortest >= HuffmanPairs::kMinBits) {
    pairs_.build(lengths, order);
    built_ = Built::kPairs;
  } else {
    table_.build(lengths, order);
    built_ = Built::kTable;
  }
}

bool HuffmanFrames::decode_streams(std::span<const std::byte> in, std::span<std::byte> out,
                                   PrefetchQueue& upcoming) noexcept {
  switch (built_) {
    case Built::kNone:
      return false;
    case Built::kTable:
      return codec::decode_streams(table_, in, out, spare_, upcoming);
    case Built::kPairs:
      return codec::decode_streams(pairs_, in, out, spare_, upcoming);
  }
  return false;
}

bool HuffmanFrames::decode_literals(std::span<const std::byte>& in, std::span<std::byte>& out,
                                    PrefetchQueue& upcoming) noexcept {
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
  if (plain > std::min(out.size(), kMaxBlockBytes) || packed > in.size() - header_bytes) return false;
  auto body = in.subspan(header_bytes, packed);
  if (kind == kPacked) {
    CodeLengths lengths{};
    const std::size_t used = read_code_lengths(body, lengths);
    if (used == 0) return false;
    build(lengths);
    body = body.subspan(used);
  }
  if (!decode_streams(body, out.first(plain), upcoming)) return false;
  in = in.subspan(header_bytes + packed);
  out = out.subspan(plain);
  return true;
}

bool HuffmanFrames::decode(std::span<const std::byte> frame, std::span<std::byte> plane,
                           PrefetchQueue& upcoming) noexcept {
  constexpr std::size_t kFrameHeader = 2, kBlockHeader = 3;
  constexpr unsigned kRaw = 0, kPacked = 2;
  // A window's size, and neither length nor checksum nor dictionary.
  if (frame.size() < kFrameHeader || frame.front() != std::byte{0}) return false;
  built_ = Built::kNone;
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
      if (bytes > std::min(out.size(), kMaxBlockBytes)) return false;
      std::copy(block.begin(), block.end(), out.begin());  // of nothing, too, to nowhere
      out = out.subspan(bytes);
      continue;
    }
    // Behind the literals stands how many matches there are.
    if (kind != kPacked || !decode_literals(block, out, upcoming)) return false;
    if (block.size() != 1 || block.front() != std::byte{0}) return false;
  }
  return in.empty() && out.empty();
}

}  // namespace ckpt::codec
