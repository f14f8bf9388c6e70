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
// Elements of 2 bytes (bf16, fp16) and of 4 (fp32) have encodings of their own. A chunk of anything else, or
// of odd length, is encoded all the same if it pays. `previous` is the chunk as the other side holds it, of
// the same length.
//
// On the wire (little endian): one u32 per plane, least significant plane first, with its length here. Bit
// 31: it is a frame of zstd's format (plane_packer.h). Bit 30: it is packed by seven_bits.h. Both: by
// sparse_plane.h. Then come the planes that are stored as they are, then the packed ones, each in plane
// order. Last are the bytes left over when the length is no multiple of the element. What a plane holds:
// planes.h.
//
// Threads: a Coder belongs to one thread at a time. Errors: decode gives kCorrupt for anything that does not
// decode to exactly out.size() bytes; input is never trusted. Sizes are bytes.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "libckpt/base/result.h"
#include "libckpt/datapath/codec/codec.h"

namespace ckpt::codec {

// The result of encoding a chunk, estimated by a sample. Beside the most promising encoding stands the best
// of each kind, for a chooser that weighs their costs; a kind that gains nothing is kRaw with ratio 1.
struct Estimate {
  Encoding encoding = Encoding::kRaw;
  double ratio = 1;  // plain bytes per encoded byte
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

  // The most promising of the encodings; kRaw if none is. Costs 2 to 6 us whatever the chunk's size (the more
  // if the chunk is not in the cache, and with `previous`), about a tenth of encoding 64 KiB, and saves
  // encode() of the same chunk its own sampling.
  [[nodiscard]] Estimate estimate(std::span<const std::byte> chunk,
                                  std::span<const std::byte> previous) noexcept;
  // Bytes written to `out`, whose size is at least the chunk's. nullopt: the encoding gains nothing on this
  // chunk; `out` may have been written.
  [[nodiscard]] std::optional<std::size_t> encode(Encoding encoding, std::span<const std::byte> chunk,
                                                  std::span<const std::byte> previous,
                                                  std::span<std::byte> out) noexcept;
  // Every encoding but kInvalid, kBlocks and kZero, kRaw included. `previous` may be empty unless the
  // encoding needs it, and may be `out` itself. After an error `out` is as it was.
  Result<void> decode(Encoding encoding, std::span<const std::byte> encoded,
                      std::span<const std::byte> previous, std::span<std::byte> out);

 private:
  struct State;
  explicit Coder(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace ckpt::codec
