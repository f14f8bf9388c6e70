// SPDX-License-Identifier: Apache-2.0
// Lossless chunk encodings. A chunk is sent as (encoding, encoded bytes). kZero has no bytes, and kRaw has
// the chunk's own bytes.
//
//   const Codec* codec = find_codec(encoding_from_the_wire);     // nullptr: refuse the message
//   const auto size = codec->encode(chunk, scratch);             // nullopt: it does not pay here, take the next
//   CKPT_TRYV(codec->decode(encoded, chunk_out));
//
// Threads: codecs are stateless and shared. Errors: decode returns kCorrupt for anything that does not decode
// to exactly out.size() bytes. Input is never trusted. Sizes are bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "libckpt/base/result.h"

namespace ckpt::codec {

// The encoding of a chunk. The values are sent on the wire: they are stable and never reused.
enum class Encoding : std::uint8_t {
  kInvalid = 0,
  kZero = 1,
  kRaw = 2,
  kPlanes2 = 3,      // elements of 2 bytes, as byte planes
  kPlanes4 = 4,      // elements of 4 bytes, as byte planes
  kDifference2 = 5,  // the difference to the other side's version, as byte planes of 2-byte elements
  kDifference4 = 6,
  kBlocks = 7,  // a patch of the changed 4 KiB blocks; the other side keeps its other blocks
  kLast = kBlocks,
};
// Returns whether the other side needs the version against which the chunk was encoded.
[[nodiscard]] constexpr bool needs_previous(Encoding encoding) noexcept {
  return encoding >= Encoding::kDifference2 && encoding <= Encoding::kBlocks;
}
[[nodiscard]] std::string_view to_string(Encoding encoding) noexcept;

class Codec {
 public:
  virtual ~Codec() = default;
  [[nodiscard]] virtual Encoding encoding() const noexcept = 0;
  // Returns the largest output that encode() may write for `bytes` bytes of input.
  [[nodiscard]] virtual std::size_t bound(std::size_t bytes) const noexcept = 0;
  // Returns the number of bytes written to `out` (at least bound(in.size()) long). Returns nullopt if this
  // codec does not suit the chunk.
  [[nodiscard]] virtual std::optional<std::size_t> encode(std::span<const std::byte> in,
                                                          std::span<std::byte> out) const = 0;
  virtual Result<void> decode(std::span<const std::byte> in, std::span<std::byte> out) const = 0;
};

// Returns the codec. Returns nullptr for kInvalid, for encodings that need a Coder (coder.h) or a patch
// (blocks.h), and for values that this build does not know.
[[nodiscard]] const Codec* find_codec(Encoding encoding) noexcept;

// Returns whether all bytes are zero. It is vectorized; an empty span is zero.
[[nodiscard]] bool is_zero(std::span<const std::byte> bytes) noexcept;

}  // namespace ckpt::codec
