// SPDX-License-Identifier: Apache-2.0
// Packs a plane as zstd's Huffman stage would, faster. It writes a bare frame (no magic number, size or
// checksum) whose blocks are Huffman literals alone, in four streams. huffman_frame.h decodes it, and so does
// zstd.
//
// A block keeps the code of the block before where a new one and its description would not be shorter. Data
// that does not shrink is stored.
// Threads: an object belongs to one thread at a time; nothing is allocated after create(). Errors: nullopt
// for what does not fit, or is left to zstd: planes below kMinBytes. Sizes are bytes.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "libckpt/base/result.h"
#include "libckpt/datapath/codec/huffman/huffman_bits.h"
#include "libckpt/datapath/codec/huffman/huffman_code.h"
#include "libckpt/datapath/codec/huffman/huffman_description.h"

namespace ckpt::codec {

class HuffmanWriter {
 public:
  // Below it streams become so short that their ends weigh more than what is in them.
  static constexpr std::size_t kMinBytes = 1024;
  static Result<std::unique_ptr<HuffmanWriter>> create();

  // Bytes written to `out`.
  [[nodiscard]] std::optional<std::size_t> pack(std::span<const std::byte> plane,
                                                std::span<std::byte> out) noexcept;

 private:
  HuffmanWriter() = default;
  // Bytes written, 0 if it does not shrink, or has no code. What is behind it in `out` may have been written.
  [[nodiscard]] std::size_t pack_literals(std::span<const std::byte> block,
                                          std::span<std::byte> out) noexcept;
  // Bytes of the block's codes with the code that there is; SIZE_MAX if it lacks one of them.
  [[nodiscard]] static std::size_t packed_size(const SymbolCounts& counts,
                                               const CodeLengths& lengths) noexcept;

  SymbolCounts counts_{};
  bool has_code_ = false;  // of a block of the same frame
  CodeLengths lengths_{};
  CodeTable table_{};
  CodeDescription description_{};
};

}  // namespace ckpt::codec
