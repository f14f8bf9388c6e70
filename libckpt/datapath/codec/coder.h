// SPDX-License-Identifier: Apache-2.0
// Lossless encodings of one chunk that need working memory (docs/design.md §5 "Codecs"). They are byte planes
// packed by Huffman codes, and the difference to the target's version, in byte planes.
//
//   CKPT_TRY(coder, Coder::create(chunk_bytes));                      // one per thread; nothing is allocated
//                                                                     // after it
//   const Estimate estimate = coder->estimate(chunk, previous);       // samples entropy; previous may be
//                                                                     // empty
//   if (auto size = coder->encode(estimate.encoding, chunk, previous, out)) ...   // nullopt: send it raw
//   CKPT_TRYV(coder->decode(encoding, encoded, previous, chunk_out));
//
// Elements of 2 bytes (bf16, fp16) and of 4 bytes (fp32) have their own encodings. A chunk of other data, or
// of odd length, is encoded anyway if that pays. `previous` is the other side's version of the chunk, with
// the same length.
//
// On the wire (little endian): one u32 per plane, least significant plane first, with the plane's length. Bit
// 31: the plane is a frame of zstd's format (plane_packer.h). Bit 30: it is packed by seven_bits.h. Both
// bits: it is packed by sparse_plane.h. The unpacked planes follow, then the packed planes, each in plane
// order. Last are the remaining bytes if the length is not a multiple of the element. planes.h describes the
// content of a plane.
//
// Threads: a Coder belongs to one thread at a time. Errors: decode returns kCorrupt for anything that does
// not decode to exactly out.size() bytes. Input is never trusted. Sizes are bytes.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "libckpt/base/result.h"
#include "libckpt/datapath/codec/codec.h"

namespace ckpt::codec {

// The estimated result of encoding a chunk, from a sample. Besides the most promising encoding, it has the
// best encoding of each kind, for a chooser that weighs their costs. A kind without gain is kRaw with ratio
// 1.
struct Estimate {
  Encoding encoding = Encoding::kRaw;
  double ratio = 1;  // the plain bytes per encoded byte
  Encoding planes = Encoding::kRaw;
  double planes_ratio = 1;
  Encoding difference = Encoding::kRaw;
  double difference_ratio = 1;
};

class Coder {
 public:
  static Result<std::unique_ptr<Coder>> create(std::size_t max_chunk_bytes);
  ~Coder();
  Coder(const Coder&) = delete;
  Coder& operator=(const Coder&) = delete;

  // Returns the most promising encoding, or kRaw if there is none. It takes 2 to 6 us whatever the chunk's
  // size, about a tenth of encoding 64 KiB. It takes longer if the chunk is not in the cache, and with
  // `previous`. It saves encode() of the same chunk its own sampling.
  [[nodiscard]] Estimate estimate(std::span<const std::byte> chunk,
                                  std::span<const std::byte> previous) noexcept;
  // Returns the number of bytes written to `out`, whose size is at least the chunk's. Returns nullopt if the
  // encoding gains nothing on this chunk; `out` may have been written.
  [[nodiscard]] std::optional<std::size_t> encode(Encoding encoding, std::span<const std::byte> chunk,
                                                  std::span<const std::byte> previous,
                                                  std::span<std::byte> out) noexcept;
  // Decodes every encoding except kInvalid, kBlocks and kZero. `previous` may be empty unless the encoding
  // needs it, and may be `out` itself. After an error `out` is unchanged.
  Result<void> decode(Encoding encoding, std::span<const std::byte> encoded,
                      std::span<const std::byte> previous, std::span<std::byte> out);

 private:
  struct State;
  explicit Coder(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace ckpt::codec
