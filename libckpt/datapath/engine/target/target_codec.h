// SPDX-License-Identifier: Apache-2.0
// How the target makes chunks of the received messages: each coding thread has a decoder with buffers and a
// stream of its own. A block that does not decode is left out: the chunk keeps its content, its fingerprint
// differs, and the source sends it raw (ENG-1). Internal to the engine.
//
// Threads: a Decoder belongs to its coding thread. Ownership: the Device outlives it. Nothing is allocated
// after create().
// Errors: create(): no staging memory, the driver's; else the driver's.
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
  // A message begins: the present content of its chunks is fetched where an encoding needs it. Blocks until
  // it is there.
  Result<void> begin(std::span<const ReceiverCore::Placed> places);
  // The next chunk of the message in pinned memory, until the next begin(); empty if it does not decode.
  [[nodiscard]] std::span<const std::byte> decode(const ReceiverCore::Placed& placed,
                                                  std::span<const std::byte> encoded);

 private:
  Decoder(const Device& device, StagingSlot slot) : device_(device), chunks_(std::move(slot)) {}
  const Device& device_;
  StagingSlot chunks_;  // one after the other; their old content and then their new one
  std::size_t at_ = 0;
  CUstream stream_ = nullptr;
  std::unique_ptr<codec::Coder> coder_;
};

// Planes and differences: not copied as they came.
[[nodiscard]] constexpr bool needs_decoder(codec::Encoding encoding) noexcept {
  return encoding >= codec::Encoding::kPlanes2 && encoding <= codec::Encoding::kDifference4;
}

}  // namespace ckpt::engine
