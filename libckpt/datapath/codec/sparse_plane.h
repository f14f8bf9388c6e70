// SPDX-License-Identifier: Apache-2.0
// Planes of one value but for a few bytes: the upper planes of differences. Huffman needs at least a bit a
// byte for them, and matches cost more than they save: here it is a comparison and a fill.
//
// The value, then for each exception its distance to the one before and its byte. A byte below 255 counts the
// bytes of the value before the exception. 255 means 255 bytes and no exception after them. What follows the
// last exception is the value.
// Threads: any, stateless; nothing is allocated. Sizes are bytes.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace ckpt::codec {

// Bytes written to `out`; nullopt if the plane is empty, or would fill more of `out` than a sixty-fourth of
// the plane and 16 bytes, up to which this is the best way.
[[nodiscard]] std::optional<std::size_t> pack_sparse(std::span<const std::byte> plane,
                                                     std::span<std::byte> out) noexcept;
// False unless `packed` describes exactly the plane; `plane` may have been written. `packed` is untrusted.
[[nodiscard]] bool unpack_sparse(std::span<const std::byte> packed, std::span<std::byte> plane) noexcept;

}  // namespace ckpt::codec
