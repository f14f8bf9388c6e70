// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/engine/source/source_codec.h"

#include <algorithm>
#include <cstring>

#include "libckpt/datapath/codec/blocks.h"

namespace ckpt::engine {
namespace {

// The cost of a copy: the target writes each run of changed blocks with a separate copy.
constexpr Nanos kCopyCost = 4'000;
constexpr std::size_t kMaxMaskWords = codec::block_mask_words(track::kMaxChunkBytes);

}  // namespace

Result<std::unique_ptr<SourceCodec>> SourceCodec::create(codec::CodecMode mode,
                                                         std::uint64_t shadow_memory_bytes,
                                                         std::uint64_t chunk_bytes, std::size_t workers) {
  if (mode == codec::CodecMode::kRaw) return std::unique_ptr<SourceCodec>();
  std::unique_ptr<SourceCodec> made(new SourceCodec(mode, chunk_bytes, workers));
  const bool differs = mode == codec::CodecMode::kAuto || mode == codec::CodecMode::kDifference;
  if (differs && shadow_memory_bytes >= chunk_bytes) {
    CKPT_TRY(shadows, ShadowStore::create(shadow_memory_bytes, chunk_bytes));
    made->shadows_ = std::move(shadows);
  }
  for (std::size_t i = 0; i < workers; ++i) {
    CKPT_TRY(coder, codec::Coder::create(chunk_bytes));
    made->coders_.push_back(std::move(coder));
  }
  return made;
}

ChunkHistory SourceCodec::history(std::uint64_t region_bytes) const {
  return {region_bytes, chunk_bytes_, mode_ == codec::CodecMode::kAuto, shadows_ != nullptr};
}

void SourceCodec::set_link_rate(std::uint64_t bytes_per_second) noexcept {
  link_rate_.store(bytes_per_second, std::memory_order_relaxed);
  chooser_.set_link_rate(bytes_per_second);
}

void SourceCodec::observe(std::uint64_t plain_bytes, Nanos time) noexcept {
  // If the chooser would not encode, or nothing can be encoded, both choices are equal and a trial costs
  // nothing.
  if (mode_ == codec::CodecMode::kAuto)
    trial_.observe(plain_bytes, time, link_rate_.load(std::memory_order_relaxed));
}

void SourceCodec::encode(StagedMessage& message, std::size_t worker, std::uint32_t round) noexcept {
  const std::span<std::byte> buffer(message.encoded.get(), kSlotBytes);
  std::size_t in = 0;
  std::size_t out = 0;
  bool any = false;  // whether a chunk was encoded; before the first encoded chunk, the payload is the slot
                     // itself
  for (std::uint32_t i = 0; i < message.count; ++i) {
    if (message.chunks[i].zero) {
      message.codes[i] = {codec::Encoding::kZero, 0};
      ShadowStore::forget(message.chunks[i].region->history(), message.chunks[i].chunk);
      continue;
    }
    const std::span<const std::byte> plain = message.plain.subspan(in, message.length(i, chunk_bytes_));
    auto code = encode_chunk(message, i, plain, buffer.subspan(out), *coders_[worker], round);
    // The earlier chunks of the message are unencoded.
    if (code && !any) std::memcpy(buffer.data(), message.plain.data(), in);
    any = any || code.has_value();
    if (!code) {
      code = StagedMessage::Code{codec::Encoding::kRaw, static_cast<std::uint32_t>(plain.size())};
      if (any) std::memcpy(buffer.data() + out, plain.data(), plain.size());
    }
    message.codes[i] = *code;
    in += plain.size();
    out += code->bytes;
  }
  message.payload = any ? std::span<const std::byte>(buffer.first(out)) : message.plain.first(in);
}

// Encodes a chunk. Returns nullopt if the chunk is sent unencoded.
std::optional<StagedMessage::Code> SourceCodec::encode_chunk(const StagedMessage& message,
                                                             std::uint32_t index,
                                                             std::span<const std::byte> plain,
                                                             std::span<std::byte> out, codec::Coder& coder,
                                                             std::uint32_t round) noexcept {
  const DirtyChunk& chunk = message.chunks[index];
  ChunkHistory& history = chunk.region->history();
  std::optional<StagedMessage::Code> code;
  if (auto size = encode_changed(message, index, plain, out))
    code = {codec::Encoding::kBlocks, static_cast<std::uint32_t>(*size)};
  const bool may_encode = !chunk.raw && trial_.on() && chooser_.may_encode();
  if (!code && may_encode) {
    const Nanos begin = now_ns();
    std::span<const std::byte> previous;
    if (shadows_) previous = shadows_->find(history, chunk.chunk, plain.size(), round);
    const codec::Encoding encoding = chooser_.choose(coder.estimate(plain, previous));
    if (encoding != codec::Encoding::kRaw)
      if (auto size =
              coder.encode(encoding, plain, previous, out.first(std::min(out.size(), plain.size())))) {
        chooser_.observe(encoding, plain.size(), now_ns() - begin);
        code = {encoding, static_cast<std::uint32_t>(*size)};
      }
  }
  if (shadows_ && may_encode)
    shadows_->store(history, chunk.chunk, plain, round);
  else
    ShadowStore::forget(history, chunk.chunk);
  return code;
}

// Encodes the blocks whose marks differ from the target's, if that is worth the copies at the target.
std::optional<std::size_t> SourceCodec::encode_changed(const StagedMessage& message, std::uint32_t index,
                                                       std::span<const std::byte> plain,
                                                       std::span<std::byte> out) const noexcept {
  const DirtyChunk& chunk = message.chunks[index];
  const std::span<const std::uint32_t> now = message.marks_of(index);
  const std::span<const std::uint32_t> held = chunk.region->history().marks(chunk.chunk);
  if (chunk.raw || now.empty() || held.size() != now.size()) return std::nullopt;
  std::array<std::uint32_t, kMaxMaskWords> words{};
  const std::span<std::uint32_t> mask = std::span(words).first(codec::block_mask_words(plain.size()));
  std::size_t runs = 0;
  bool before = false;
  for (std::size_t block = 0; block < now.size(); ++block) {
    const bool changed = now[block] != held[block];
    if (changed) codec::set_block(mask, block);
    if (changed && !before) ++runs;
    before = changed;
  }
  const std::size_t size = codec::blocks_size(plain.size(), mask);
  const std::uint64_t link = link_rate_.load(std::memory_order_relaxed);
  if (size == 0 || size >= plain.size()) return std::nullopt;
  const double saved = static_cast<double>(plain.size() - size) * 1e9;
  if (link != 0 && saved / static_cast<double>(link) < static_cast<double>(runs) * kCopyCost)
    return std::nullopt;
  return codec::encode_blocks(plain, mask, out);
}

void SourceCodec::acknowledged(const StagedMessage& message, std::uint32_t index) noexcept {
  const DirtyChunk& chunk = message.chunks[index];
  ChunkHistory& history = chunk.region->history();
  const std::span<const std::uint32_t> marks = message.marks_of(index);
  if (marks.empty())
    history.forget(chunk.chunk);
  else
    history.hold(chunk.chunk, marks);
}

void SourceCodec::wrong(const DirtyChunk& chunk) noexcept {
  ChunkHistory& history = chunk.region->history();
  history.forget(chunk.chunk);
  ShadowStore::forget(history, chunk.chunk);
}

void SourceCodec::unsent(const StagedMessage& message) noexcept {
  for (std::uint32_t i = 0; i < message.count; ++i)
    ShadowStore::forget(message.chunks[i].region->history(), message.chunks[i].chunk);
}

}  // namespace ckpt::engine
