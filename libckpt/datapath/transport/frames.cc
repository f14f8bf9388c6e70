// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/transport/frames.h"

#include <algorithm>
#include <cstring>

namespace ckpt::transport {

Result<Frame> parse_frame_start(const void* bytes) {
  Frame frame;
  std::memcpy(&frame, bytes, sizeof frame);
  if (frame.magic != Frame::kMagic || frame.header_bytes > kMaxHeaderBytes ||
      frame.payload_bytes > kMaxPayloadBytes)
    return Error(ErrorCode::kProtocol, "The peer sent a message that is not a frame of this protocol");
  return frame;
}

Result<FrameView> parse_frame(const void* header, std::size_t header_bytes, std::size_t payload_bytes) {
  if (header == nullptr || header_bytes < sizeof(Frame) || header_bytes > kMaxFrameBytes)
    return Error(ErrorCode::kProtocol,
                 "The peer sent a message whose header has " + std::to_string(header_bytes) + " bytes");
  CKPT_TRY(frame, parse_frame_start(header));
  if (frame.header_bytes != header_bytes - sizeof(Frame) || payload_bytes != frame.bytes_behind())
    return Error(ErrorCode::kProtocol, "The peer sent a message that is not a frame of this protocol");
  return FrameView{frame, {static_cast<const std::byte*>(header) + sizeof(Frame), frame.header_bytes}};
}

std::size_t write_hello(const Hello& hello, std::span<std::byte, kMaxHelloBytes> to) noexcept {
  Frame frame;
  frame.kind = FrameKind::kHello;
  frame.header_bytes = sizeof hello.token + (hello.offer.pid != 0 ? sizeof hello.offer : 0);
  std::memcpy(to.data(), &frame, sizeof frame);
  std::memcpy(to.data() + sizeof frame, hello.token.data(), sizeof hello.token);
  std::memcpy(to.data() + sizeof frame + sizeof hello.token, &hello.offer, sizeof hello.offer);
  return sizeof frame + frame.header_bytes;
}

std::optional<Hello> parse_hello(const FrameView& view) noexcept {
  Hello hello;
  const bool offers = view.header.size() == sizeof hello.token + sizeof hello.offer;
  if (!offers && view.header.size() != sizeof hello.token) return std::nullopt;
  if (view.frame.kind != FrameKind::kHello || view.frame.payload_bytes != 0) return std::nullopt;
  std::memcpy(hello.token.data(), view.header.data(), sizeof hello.token);
  if (offers) std::memcpy(&hello.offer, view.header.data() + sizeof hello.token, sizeof hello.offer);
  return hello;
}

PayloadAccess access_of_welcome(const Frame& welcome, const SameHostOffer& offer) noexcept {
  const bool known = welcome.sequence <= static_cast<std::uint64_t>(PayloadAccess::kMaps);
  return offer.pid != 0 && known ? static_cast<PayloadAccess>(welcome.sequence) : PayloadAccess::kSent;
}

Outgoing& OutgoingRing::prepare(std::span<const std::byte> header, std::span<const std::byte> payload,
                                std::uint64_t token, std::uint64_t delivered, bool same_host) noexcept {
  Outgoing& slot = at(end_);
  slot.large = payload.size() >= kLargePayloadBytes;
  slot.same_host = same_host && slot.large;
  slot.address = reinterpret_cast<std::uint64_t>(payload.data());
  slot.payload = slot.same_host ? std::as_bytes(std::span(&slot.address, 1)) : payload;
  slot.token = token;
  slot.done = false;
  Frame frame;
  if (slot.same_host) frame.kind = FrameKind::kSameHost;
  frame.header_bytes = static_cast<std::uint16_t>(header.size());
  frame.sequence = end_;
  frame.payload_bytes = payload.size();
  frame.delivered = delivered;
  std::memcpy(slot.head.data(), &frame, sizeof frame);
  if (!header.empty()) std::memcpy(slot.head.data() + sizeof frame, header.data(), header.size());
  slot.head_bytes = sizeof frame + header.size();
  return slot;
}

Result<void> OutgoingRing::apply_credit(std::uint64_t delivered) {
  if (delivered > end_)
    return Error(ErrorCode::kProtocol, "The peer acknowledges messages that were not sent");
  credited_ = std::max(credited_, delivered);
  return ok();
}

std::optional<std::uint64_t> OutgoingRing::pop_sent() noexcept {
  if (first_ == end_ || first_ >= credited_ + kMaxAhead) return std::nullopt;
  const Outgoing& slot = at(first_);
  if (!slot.done || (slot.same_host && first_ >= credited_)) return std::nullopt;
  ++first_;
  return slot.token;
}

}  // namespace ckpt::transport
