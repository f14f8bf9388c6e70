// SPDX-License-Identifier: Apache-2.0
// Planes of one value with a few exceptions: the upper planes of differences. Huffman codes need at least one
// bit per byte for such planes, and matches cost more than they save. This format needs only a comparison and
// a fill.
//
// The format is the value, then for each exception its distance to the previous exception and its byte. A
// byte below 255 counts the bytes of the value before the exception. 255 means 255 bytes without an exception
// after them. The rest after the last exception is the value.
// Threads: any, stateless; nothing is allocated. Sizes are bytes.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace ckpt::codec {

// Returns the number of bytes written to `out`. Returns nullopt if the plane is empty, or would need more of
// `out` than a sixty-fourth of the plane and 16 bytes. Up to that size this format is the best.
[[nodiscard]] std::optional<std::size_t> pack_sparse(std::span<const std::byte> plane,
                                                     std::span<std::byte> out) noexcept;
// Unpacks a plane. Returns false unless `packed` describes exactly the plane; `plane` may have been written.
// `packed` is untrusted.
[[nodiscard]] bool unpack_sparse(std::span<const std::byte> packed, std::span<std::byte> plane) noexcept;

}  // namespace ckpt::codec
