// SPDX-License-Identifier: Apache-2.0
// A message of chunks between the copy from the device and the link. Internal to the engine. A lane's slot
// owns the message, which is created once and used again.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "libckpt/datapath/codec/codec.h"
#include "libckpt/datapath/engine/shared/lane_messages.h"
#include "libckpt/datapath/engine/shared/staging.h"
#include "libckpt/datapath/engine/source/sender_core.h"

namespace ckpt::engine {

struct StagedMessage {
  struct Code {
    codec::Encoding encoding = codec::Encoding::kRaw;
    std::uint32_t bytes = 0;  // the chunk's bytes in the payload
  };
  // Creates a message. `with_codec` adds a second buffer, and memory for marks.
  explicit StagedMessage(bool with_codec)
      : marks(with_codec ? kSlotBytes / track::kBlockBytes + kMaxChunks : 0),
        // The buffer is zeroed, so that its pages exist.
        encoded(with_codec ? std::make_unique<std::byte[]>(kSlotBytes) : nullptr) {}

  [[nodiscard]] std::uint32_t length(std::uint32_t index, std::uint64_t chunk_bytes) const {
    const DirtyChunk& chunk = chunks[index];
    return static_cast<std::uint32_t>(chunk_length(chunk.region->get().bytes, chunk_bytes, chunk.chunk));
  }
  [[nodiscard]] std::span<const std::uint32_t> marks_of(std::uint32_t index) const {
    return std::span(marks).subspan(first_mark[index], mark_counts[index]);
  }

  std::uint32_t count = 0;
  std::array<DirtyChunk, kMaxChunks> chunks;
  std::array<track::Fingerprint, kMaxChunks> staged;  // the fingerprints of the plain bytes
  std::array<Code, kMaxChunks> codes;
  std::array<std::uint32_t, kMaxChunks> first_mark{}, mark_counts{};
  std::vector<std::uint32_t> marks;
  std::uint64_t plain_bytes = 0;       // the bytes of the nonzero chunks, which are consecutive in the slot
  std::span<const std::byte> plain;    // the nonzero chunks in the slot
  std::span<const std::byte> payload;  // the bytes to send: `plain` itself, or a part of `encoded`
  std::unique_ptr<std::byte[]> encoded;
};

}  // namespace ckpt::engine
