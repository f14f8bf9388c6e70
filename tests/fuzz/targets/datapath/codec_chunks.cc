// SPDX-License-Identifier: Apache-2.0
// Encoded chunks: {encoding u8, length of the chunk u16, has a previous version u8, bytes}. Decoding gives
// exactly the chunk's length, or an error that leaves the destination unchanged. The same bytes taken as a
// chunk survive encoding and decoding.
#include <vector>

#include "libckpt/datapath/codec/blocks.h"
#include "libckpt/datapath/codec/coder.h"
#include "tests/fuzz/fuzz.h"

namespace ckpt::fuzz {
namespace {

using codec::Encoding;
using Bytes = std::span<const std::byte>;

constexpr std::size_t kMaxChunkBytes = 1 << 16;
constexpr Encoding kEncodings[] = {Encoding::kRaw,         Encoding::kPlanes2,     Encoding::kPlanes4,
                                   Encoding::kDifference2, Encoding::kDifference4, Encoding::kBlocks};

codec::Coder& coder() {
  static const auto made = codec::Coder::create(kMaxChunkBytes).value();
  return *made;
}

// Returns bytes that differ by position, but not from run to run.
std::vector<std::byte> pattern(std::size_t bytes, std::uint8_t seed) {
  std::vector<std::byte> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(i * 37 + seed);
  return out;
}

void check_decode(Encoding encoding, Bytes encoded, Bytes previous, std::size_t length) {
  std::vector<std::byte> out[2] = {pattern(length, 1), pattern(length, 2)};
  bool decoded[2];
  for (std::size_t i = 0; i < 2; ++i) {
    const auto before = out[i];
    decoded[i] = coder().decode(encoding, encoded, previous, out[i]).has_value();
    if (!decoded[i]) FUZZ_CHECK(out[i] == before);
  }
  FUZZ_CHECK(decoded[0] == decoded[1]);
  if (decoded[0]) FUZZ_CHECK(out[0] == out[1]);
}

// Checks that parsed blocks are inside the chunk, in order. Encoding the same blocks must give exactly the
// same bytes.
void check_patch(Bytes encoded, std::size_t length) {
  const auto patch = codec::parse_blocks(encoded, length);
  if (!patch) return;
  std::vector<std::byte> chunk = pattern(length, 1);
  std::vector<std::uint32_t> mask(codec::block_mask_words(length));
  std::size_t end = 0;
  std::size_t changed = 0;
  for (const codec::Piece& piece : *patch) {
    FUZZ_CHECK(piece.offset >= end && piece.offset % codec::kPatchBlockBytes == 0);
    FUZZ_CHECK(piece.offset <= length && piece.bytes.size() <= length - piece.offset);
    std::copy(piece.bytes.begin(), piece.bytes.end(),
              chunk.begin() + static_cast<std::ptrdiff_t>(piece.offset));
    end = piece.offset + piece.bytes.size();
    changed += piece.bytes.size();
    for (std::size_t at = piece.offset; at < end; at += codec::kPatchBlockBytes)
      codec::set_block(mask, at / codec::kPatchBlockBytes);
  }
  FUZZ_CHECK(changed == patch->changed_bytes());
  std::vector<std::byte> again(length);
  const auto size = codec::encode_blocks(chunk, mask, again);
  if (size)
    FUZZ_CHECK(std::equal(encoded.begin(), encoded.end(), again.begin(),
                          again.begin() + static_cast<std::ptrdiff_t>(*size)));
}

void check_round_trip(Encoding encoding, Bytes chunk, Bytes previous) {
  std::vector<std::byte> encoded(chunk.size());
  const auto size = coder().encode(encoding, chunk, previous, encoded);
  if (!size) return;
  FUZZ_CHECK(*size < chunk.size());
  std::vector<std::byte> out(chunk.size());
  FUZZ_CHECK(coder().decode(encoding, Bytes(encoded).first(*size), previous, out).has_value());
  FUZZ_CHECK(std::equal(out.begin(), out.end(), chunk.begin(), chunk.end()));
}

}  // namespace
}  // namespace ckpt::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ckpt;
  fuzz::Input input(data, size);
  const codec::Encoding encoding =
      fuzz::kEncodings[input.number<std::uint8_t>() % std::size(fuzz::kEncodings)];
  const std::size_t length = input.number<std::uint16_t>();
  const bool has_previous = input.number<std::uint8_t>() % 2 == 1;
  const auto bytes = input.rest();
  if (encoding == codec::Encoding::kBlocks) {
    fuzz::check_patch(bytes, length);
    return 0;
  }
  fuzz::check_decode(encoding, bytes, has_previous ? fuzz::pattern(length, 3) : std::vector<std::byte>(),
                     length);
  const auto previous = has_previous ? fuzz::pattern(bytes.size(), 3) : std::vector<std::byte>();
  const codec::Estimate estimate = fuzz::coder().estimate(bytes, previous);
  FUZZ_CHECK(has_previous || !codec::needs_previous(estimate.encoding));
  fuzz::check_round_trip(encoding, bytes, previous);
  return 0;
}
