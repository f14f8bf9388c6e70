// SPDX-License-Identifier: Apache-2.0
// Lossless chunk encodings. A chunk travels as (encoding, encoded bytes); kZero has no bytes, kRaw has the
// chunk's own.
//
//   const Codec* codec = find_codec(encoding_from_the_wire);     // nullptr: refuse the message
//   const auto size = codec->encode(chunk, scratch);             // nullopt: it does not pay here, take the next
//   CKPT_TRYV(codec->decode(encoded, chunk_out));
//
// Threads: codecs are stateless and shared. Errors: decode gives kCorrupt for anything that does not decode
// to exactly out.size() bytes; input is never trusted. Sizes are bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "libckpt/base/result.h"

namespace ckpt::codec {

// Values are on the wire: stable, never reused.
enum class Encoding : std::uint8_t {
  kInvalid = 0,
  kZero = 1,
  kRaw = 2,
  kPlanes2 = 3,      // elements of 2 bytes, byte planes
  kPlanes4 = 4,      // elements of 4 bytes
  kDifference2 = 5,  // the same of the difference to what the other side holds
  kDifference4 = 6,
  kBlocks = 7,  // only the 4 KiB blocks that changed; the rest stays as it is at the other side
  kLast = kBlocks,
};
// The other side must hold the version it was encoded against.
[[nodiscard]] constexpr bool needs_previous(Encoding encoding) noexcept {
  return encoding >= Encoding::kDifference2 && encoding <= Encoding::kBlocks;
}
[[nodiscard]] std::string_view to_string(Encoding encoding) noexcept;

class Codec {
 public:
  virtual ~Codec() = default;
  [[nodiscard]] virtual Encoding encoding() const noexcept = 0;
  // The largest output encode() may write for `bytes` bytes of input.
  [[nodiscard]] virtual std::size_t bound(std::size_t bytes) const noexcept = 0;
  // Bytes written to `out` (at least bound(in.size()) long), or nullopt if this chunk is not for this codec.
  [[nodiscard]] virtual std::optional<std::size_t> encode(std::span<const std::byte> in,
                                                          std::span<std::byte> out) const = 0;
  virtual Result<void> decode(std::span<const std::byte> in, std::span<std::byte> out) const = 0;
};

// nullptr for kInvalid, for encodings that need a Coder (coder.h) or a patch (blocks.h), and for values this
// build does not know.
[[nodiscard]] const Codec* find_codec(Encoding encoding) noexcept;

// All bytes are zero. Vectorised; an empty span is zero.
[[nodiscard]] bool is_zero(std::span<const std::byte> bytes) noexcept;

}  // namespace ckpt::codec
