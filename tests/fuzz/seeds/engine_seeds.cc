// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/codec/blocks.h"
#include "libckpt/datapath/codec/coder.h"
#include "libckpt/datapath/engine/shared/lane_messages.h"
#include "libckpt/datapath/transport/frames.h"
#include "tests/fuzz/seeds/seeds.h"

namespace ckpt::fuzz {

void add_lane_headers(Corpus& corpus) {
  using namespace engine;
  const SessionIdentity id{7, 2, 0};  // the same identity as in lane_headers.cc
  const auto add = [&](LaneMessage type, const auto& fill) {
    LaneBuffer message(type, id, 3);
    fill(message);
    corpus.add_numbered("lane_headers", bytes_text(message.bytes()));
  };
  const auto nothing = [](LaneBuffer&) {};
  for (const LaneMessage type :
       {LaneMessage::kCalibrate, LaneMessage::kCalibrateAck, LaneMessage::kFinal, LaneMessage::kVerify})
    add(type, nothing);
  for (const LaneMessage type : {LaneMessage::kPlan, LaneMessage::kHostState, LaneMessage::kManifest})
    add(type, [](LaneBuffer& m) { m.append(BlobRecord{4096, 0, {1, 2}}); });
  for (const LaneMessage type : {LaneMessage::kPing, LaneMessage::kPong, LaneMessage::kScanDone})
    add(type, [](LaneBuffer& m) { m.append(ClockRecord{123}); });
  add(LaneMessage::kHostMemory, [](LaneBuffer& m) { m.append(HostMemoryRecord{4096, 1024}); });
  add(LaneMessage::kDrop, [](LaneBuffer& m) { m.append(DropRecord{1, 1}); });
  for (const std::size_t count : {std::size_t{1}, kMaxChunks}) {
    add(LaneMessage::kChunks, [&](LaneBuffer& m) {
      for (std::size_t i = 0; i < count; ++i)
        m.append(ChunkRecord{
            1, 1, static_cast<std::uint32_t>(i), 65536, static_cast<std::uint8_t>(1 + i % 7), {}});
    });
    add(LaneMessage::kAck, [&](LaneBuffer& m) {
      for (std::size_t i = 0; i < count; ++i)
        m.append(AckRecord{1, 1, static_cast<std::uint32_t>(i), 0, {3, 4}});
    });
  }
  add(LaneMessage::kStale, [](LaneBuffer& m) { m.append(AckRecord{1, 1, 2, 0, {3, 4}}); });
  for (const LaneMessage type : {LaneMessage::kPlanAnswer, LaneMessage::kVerdict})
    add(type, [](LaneBuffer& m) {
      m.append(VerdictRecord{5, 0, 123, {1, 2}});
      m.append_text("tensor w1: shapes differ");
    });
  corpus.add_numbered("lane_headers",
                      bytes_text(abort_message(id, Error(ErrorCode::kAborted, "enough")).bytes()));
}

// Adds orders of chunk_messages.cc: a plan of one region, chunks into the region, a final round, a manifest;
// and parts of this sequence.
void add_chunk_messages(Corpus& corpus) {
  const std::string plan{0, 0, 0};
  const std::string zero_chunk{1, 0, 1, 1, 0, 1, 0, 0, 0, 0, 0};
  const std::string raw_chunk = std::string{1, 0, 1, 1, 0, 2} + raw(std::uint32_t{4000}) + std::string{0};
  const std::string dropped{2, 1, 1};
  const std::string final_round{3, 1, 0};
  const std::string host_state{4, 5, 'h', 'e', 'l', 'l', 'o', 2};
  const std::string manifest{5, 3, 'm', 'a', 'n', 0, 0};
  corpus.add_numbered("chunk_messages", plan + raw_chunk + final_round + host_state + manifest);
  corpus.add_numbered("chunk_messages", plan + zero_chunk + raw_chunk + dropped + final_round + manifest);
  corpus.add_numbered("chunk_messages",
                      std::string{0, 63, 2} + raw_chunk + std::string{0, 127, 2} + final_round);
  corpus.add_numbered("chunk_messages", raw_chunk);
  corpus.add_numbered("chunk_messages", host_state + host_state + plan + plan);
}

void add_chunks(Corpus& corpus) {
  constexpr codec::Encoding kEncodings[] = {codec::Encoding::kRaw, codec::Encoding::kPlanes2,
                                            codec::Encoding::kPlanes4, codec::Encoding::kDifference2,
                                            codec::Encoding::kDifference4};
  constexpr std::size_t kBytes = 2001;
  Bytes chunk(kBytes);
  Bytes previous(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) {
    previous[i] = static_cast<std::byte>(i * 37 + 3);  // the same bytes as pattern(.., 3) in codec_chunks.cc
    chunk[i] = i % 4 < 2 ? static_cast<std::byte>(i % 3) : previous[i];
  }
  const auto coder = codec::Coder::create(1 << 16).value();
  const auto length = static_cast<std::uint16_t>(kBytes);
  for (std::uint8_t i = 0; i < std::size(kEncodings); ++i) {
    const bool with_previous = codec::needs_previous(kEncodings[i]);
    Bytes encoded(kBytes);
    const auto size = coder->encode(
        kEncodings[i], chunk,
        with_previous ? std::span<const std::byte>(previous) : std::span<const std::byte>(), encoded);
    encoded.resize(size.value_or(0));
    corpus.add_numbered("codec_chunks", raw(i) + raw(length) + std::string(1, with_previous ? '\1' : '\0') +
                                            bytes_text(size ? encoded : chunk));
  }
  // The mask selects the first and the short last of three blocks.
  const std::uint32_t mask = 0b101;
  constexpr std::uint16_t kThreeBlocks = 2 * codec::kPatchBlockBytes + 100;
  corpus.add_numbered("codec_chunks", std::string(1, '\5') + raw(kThreeBlocks) + std::string(1, '\0') +
                                          raw(mask) + std::string(codec::kPatchBlockBytes + 100, 'x'));
}

void add_ucx_frames(Corpus& corpus) {
  using transport::FrameKind;
  const std::string header = "header";
  for (const FrameKind kind :
       {FrameKind::kHello, FrameKind::kWelcome, FrameKind::kMessage, FrameKind::kCredit}) {
    transport::Frame frame;
    frame.kind = kind;
    frame.header_bytes = static_cast<std::uint16_t>(header.size());
    frame.payload_bytes = 4096;
    corpus.add_numbered("ucx_frames", raw(std::uint32_t{4096}) + raw(frame) + header);
  }
  transport::Frame same_host;  // a frame that transmits only the payload's address
  same_host.kind = FrameKind::kSameHost;
  same_host.header_bytes = static_cast<std::uint16_t>(header.size());
  same_host.payload_bytes = transport::kLargePayloadBytes;
  corpus.add_numbered("ucx_frames", raw(std::uint32_t{sizeof(std::uint64_t)}) + raw(same_host) + header);
  corpus.add("ucx_frames", "address", "ucx:127.0.0.1:4000");
  corpus.add("ucx_frames", "tls_address", "tls:[fd77::1]:4711");
}

}  // namespace ckpt::fuzz
