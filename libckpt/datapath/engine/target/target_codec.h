// SPDX-License-Identifier: Apache-2.0
// The decoding of messages at the target: each coding thread has a decoder with its own buffers and stream. A
// block that cannot be decoded is skipped: the chunk keeps its content, its fingerprint differs, and the
// source sends it raw (ENG-1). Internal to the engine.
//
// Threads: a Decoder belongs to its coding thread. Ownership: the Device outlives it. Nothing is allocated
// after create(). Errors: create(): no staging memory, the driver's; other functions: the driver's.
#pragma once

#include <memory>
#include <span>

#include "libckpt/datapath/codec/coder.h"
#include "libckpt/datapath/engine/shared/staging.h"
#include "libckpt/datapath/engine/target/receiver_core.h"

namespace ckpt::engine {

class Decoder {
 public:
  static Result<std::unique_ptr<Decoder>> create(const Device& device, StagingPool& staging);
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  [[nodiscard]] CUstream stream() const noexcept { return stream_; }
  // Begins a message. The current content of its chunks is copied from the device if an encoding needs it.
  // Blocks until the content has arrived.
  Result<void> begin(std::span<const ReceiverCore::Placed> places);
  // Returns the next chunk of the message in pinned memory, valid until the next begin(). Returns an empty
  // span if the chunk cannot be decoded.
  [[nodiscard]] std::span<const std::byte> decode(const ReceiverCore::Placed& placed,
                                                  std::span<const std::byte> encoded);

 private:
  Decoder(const Device& device, StagingSlot slot) : device_(device), chunks_(std::move(slot)) {}
  const Device& device_;
  StagingSlot chunks_;  // the chunks in order, first with their old content and then with their new content
  std::size_t at_ = 0;
  CUstream stream_ = nullptr;
  std::unique_ptr<codec::Coder> coder_;
};

// Returns whether the encoding is planes or a difference, so that the chunk is not copied unchanged.
[[nodiscard]] constexpr bool needs_decoder(codec::Encoding encoding) noexcept {
  return encoding >= codec::Encoding::kPlanes2 && encoding <= codec::Encoding::kDifference4;
}

}  // namespace ckpt::engine
