// SPDX-License-Identifier: Apache-2.0
// The codec of the reference measurement, in a plain form. libckpt's codec is compared with it, on the same
// core and bytes.
//
//   CKPT_TRY(reference, ReferenceCodec::create(width, difference));     // elements of 2 or 4 bytes
//   CKPT_TRY(size, reference->encode(chunk, previous, out));            // out: bound(chunk.size()) bytes
//   CKPT_TRYV(reference->decode(wire.first(size), previous, chunk_out));
//
// Elements are rotated so that the sign is the lowest bit. With `difference`, they become instead the zigzag
// of their difference to `previous` in the order of floats. They are split into byte planes. Planes whose
// sampled entropy is above 7.7 bits are stored. The other planes are zstd frames of level -100 (acceleration
// 100) with literals always compressed by Huffman. The reference measurement used chunks of
// kReferenceChunkBytes. Splitting uses libckpt's code, so that the figures differ only by the coding.
//
// Threads: one. The decoder trusts its input, so pass only its own output to it. Errors: zstd's, as
// kInternal. Sizes are in bytes, a multiple of the element's size.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "libckpt/base/result.h"

struct ZSTD_CCtx_s;
struct ZSTD_DCtx_s;

namespace ckpt::bench {

inline constexpr std::size_t kReferenceChunkBytes = std::size_t{4} << 20;

class ReferenceCodec {
 public:
  static Result<std::unique_ptr<ReferenceCodec>> create(std::size_t width, bool difference);
  ~ReferenceCodec();
  ReferenceCodec(const ReferenceCodec&) = delete;
  ReferenceCodec& operator=(const ReferenceCodec&) = delete;

  [[nodiscard]] static std::size_t bound(std::size_t bytes) noexcept;
  Result<std::size_t> encode(std::span<const std::byte> chunk, std::span<const std::byte> previous,
                             std::span<std::byte> out);
  Result<void> decode(std::span<const std::byte> wire, std::span<const std::byte> previous,
                      std::span<std::byte> out);

 private:
  ReferenceCodec(std::size_t width, bool difference) : width_(width), difference_(difference) {}

  const std::size_t width_;
  const bool difference_;
  ZSTD_CCtx_s* pack_ = nullptr;
  ZSTD_DCtx_s* unpack_ = nullptr;
  std::vector<std::byte> planes_;  // the byte planes of one chunk
};

}  // namespace ckpt::bench
