// SPDX-License-Identifier: Apache-2.0
// The encoding of messages at the source (docs/design.md §5 "Codecs"). Each staged chunk is sent as changed
// blocks, byte planes, the difference to the version sent last, or unencoded. Internal to the engine; it does
// not exist with --codec raw.
//
// Threads: encode() runs on coding threads, with one message and one `worker` each at a time. The lane that
// has the message calls acknowledged(), wrong() and unsent(). Any thread may call set_link_rate(), and one
// thread observe(). Nothing is allocated after create(). Errors: create() only.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "libckpt/datapath/codec/chooser.h"
#include "libckpt/datapath/codec/coder.h"
#include "libckpt/datapath/engine/source/history.h"
#include "libckpt/datapath/engine/source/policy/encoding_trial.h"
#include "libckpt/datapath/engine/source/staged_message.h"

namespace ckpt::engine {

class SourceCodec {
 public:
  // Creates the codec. Returns nullptr for kRaw.
  static Result<std::unique_ptr<SourceCodec>> create(codec::CodecMode mode, std::uint64_t shadow_memory_bytes,
                                                     std::uint64_t chunk_bytes, std::size_t workers);

  [[nodiscard]] ChunkHistory history(std::uint64_t region_bytes) const;
  void set_link_rate(std::uint64_t bytes_per_second) noexcept;
  // Passes a measurement to the trial of encoding_trial.h. For the thread that scans.
  void observe(std::uint64_t plain_bytes, Nanos time) noexcept;
  // Sets the message's encodings and payload. Its plain bytes and marks must already be set.
  void encode(StagedMessage& message, std::size_t worker, std::uint32_t round) noexcept;
  // Notes that the target has chunk `index` of the message.
  static void acknowledged(const StagedMessage& message, std::uint32_t index) noexcept;
  // Notes that the target has different bytes, so the record of the chunk is wrong.
  static void wrong(const DirtyChunk& chunk) noexcept;
  // Notes that an encoded message is not sent.
  static void unsent(const StagedMessage& message) noexcept;

 private:
  SourceCodec(codec::CodecMode mode, std::uint64_t chunk_bytes, std::size_t workers)
      : mode_(mode), chunk_bytes_(chunk_bytes), chooser_(mode, static_cast<std::uint32_t>(workers)) {}
  std::optional<StagedMessage::Code> encode_chunk(const StagedMessage& message, std::uint32_t index,
                                                  std::span<const std::byte> plain, std::span<std::byte> out,
                                                  codec::Coder& coder, std::uint32_t round) noexcept;
  std::optional<std::size_t> encode_changed(const StagedMessage& message, std::uint32_t index,
                                            std::span<const std::byte> plain,
                                            std::span<std::byte> out) const noexcept;

  const codec::CodecMode mode_;
  const std::uint64_t chunk_bytes_;
  codec::Chooser chooser_;
  std::atomic<std::uint64_t> link_rate_{0};
  EncodingTrial trial_;
  std::unique_ptr<ShadowStore> shadows_;
  std::vector<std::unique_ptr<codec::Coder>> coders_;  // one coder for each worker
};

}  // namespace ckpt::engine
