// SPDX-License-Identifier: Apache-2.0
// One byte plane as a frame of zstd's format, with Huffman codes only. Matches between the bytes of floats
// are random and cost more than they save. Planes that are nearly constant are the exception. Huffman codes
// need at least one bit per byte there, and matches pay, so these planes use zstd's fast level. A plane is a
// bare frame without magic number, size or checksum (fingerprints check the chunk). zstd writes and reads it
// (docs/adr/0026).
//
// All memory is allocated at create(); packing and unpacking allocate nothing.
// Threads: an object belongs to one thread at a time. Errors: pack returns nullopt for a result that does not
// fit. unpack returns false for anything that is not exactly the plane.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "libckpt/base/result.h"

struct ZSTD_CCtx_s;
struct ZSTD_DCtx_s;

namespace ckpt::codec {

class PlanePacker {
 public:
  static Result<PlanePacker> create(std::size_t max_plane_bytes);

  // Packs a plane and returns the number of bytes written to `out`.
  [[nodiscard]] std::optional<std::size_t> pack(std::span<const std::byte> plane, bool nearly_constant,
                                                std::span<std::byte> out) noexcept;
  // Unpacks a plane. `packed` is untrusted.
  [[nodiscard]] bool unpack(std::span<const std::byte> packed, std::span<std::byte> plane) noexcept;

 private:
  using Memory = std::unique_ptr<std::byte[]>;
  PlanePacker() = default;

  // The memory in which the contexts below are located.
  Memory huffman_memory_, match_memory_, unpack_memory_;
  ZSTD_CCtx_s* huffman_ = nullptr;
  ZSTD_CCtx_s* match_ = nullptr;
  ZSTD_DCtx_s* unpack_ = nullptr;
};

}  // namespace ckpt::codec
