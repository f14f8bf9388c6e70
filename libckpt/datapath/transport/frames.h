// SPDX-License-Identifier: Apache-2.0
// The common parts of lanes over a network: the frame before each message, and the count of sent and
// delivered messages.
// Threads: the lane's. Errors: kProtocol for frames that break the rules.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "libckpt/datapath/transport/same_host_memory.h"
#include "libckpt/datapath/transport/transport.h"

namespace ckpt::transport {

enum class FrameKind : std::uint16_t {
  kHello = 1,
  kWelcome = 2,
  kMessage = 3,
  kCredit = 4,
  kBye = 5,
  kSameHost = 6
};

// The frame before each header on the wire. It is little-endian, because both ends are x86-64 or AArch64
// hosts of GPUs.
struct Frame {
  static constexpr std::uint32_t kMagic = 0x31544b43;  // the magic of a frame: the bytes "CKT1"
  std::uint32_t magic = kMagic;
  FrameKind kind = FrameKind::kMessage;
  std::uint16_t header_bytes = 0;
  std::uint64_t sequence = 0;
  // The payload's length. With kSameHost the payload stays in the sender's memory, and its address follows
  // the header.
  std::uint64_t payload_bytes = 0;
  std::uint64_t delivered = 0;  // the number of the other side's messages that this side has delivered
  // Returns the number of bytes that follow the header on the wire.
  [[nodiscard]] std::uint64_t bytes_behind() const noexcept {
    return kind == FrameKind::kSameHost ? sizeof(std::uint64_t) : payload_bytes;
  }
};
static_assert(sizeof(Frame) == 32);
inline constexpr std::size_t kMaxFrameBytes = sizeof(Frame) + kMaxHeaderBytes;

// A received frame that was checked against the limits. `header` points into the received bytes.
struct FrameView {
  Frame frame;
  std::span<const std::byte> header;
};
Result<FrameView> parse_frame(const void* header, std::size_t header_bytes, std::size_t payload_bytes);
// Reads a frame's own bytes, of which at least sizeof(Frame) are at `bytes`. Checks that its lengths are
// within the limits.
Result<Frame> parse_frame_start(const void* bytes);

// The frame HELLO, which is the connecting end's first frame.
struct Hello {
  SessionToken token{};
  SameHostOffer offer;
};
inline constexpr std::size_t kMaxHelloBytes = sizeof(Frame) + sizeof(SessionToken) + sizeof(SameHostOffer);
// Writes a HELLO and returns its length. The offer is omitted if there is none.
std::size_t write_hello(const Hello& hello, std::span<std::byte, kMaxHelloBytes> to) noexcept;
// Parses a HELLO. Returns nullopt for any other frame.
std::optional<Hello> parse_hello(const FrameView& view) noexcept;

// Returns the receiver's access to the offered memory, which WELCOME reports as its sequence.
PayloadAccess access_of_welcome(const Frame& welcome, const SameHostOffer& offer) noexcept;

// The payload size from which a peer on this host reads payloads itself. UCX sends such payloads by
// rendezvous, directly to the receiver's destination.
inline constexpr std::size_t kLargePayloadBytes = 32 * 1024;

// The limit of messages ahead of the peer. A small message counts as sent as soon as a socket has it, so
// nothing else would slow the sender. A message is reported as sent at most this far ahead of the messages
// that the peer has delivered.
inline constexpr std::uint64_t kMaxAhead = 2 * kMaxInFlight;

// A message between send() and on_sent.
struct Outgoing {
  std::array<std::byte, kMaxFrameBytes> head{};  // the frame and the header
  std::size_t head_bytes = 0;
  std::span<const std::byte> payload;  // the bytes after the header on the wire
  std::uint64_t token = 0;
  std::uint64_t address = 0;  // the address of a payload that the peer reads itself
  bool done = false;          // whether the transport no longer needs the payload
  bool same_host = false;
  bool large = false;
};

// The messages in flight, in the order of send(): a ring that is made once. Its messages stay at fixed
// addresses.
class OutgoingRing {
 public:
  OutgoingRing() : slots_(std::make_unique<std::array<Outgoing, kMaxInFlight>>()) {}

  [[nodiscard]] bool full() const noexcept { return end_ - first_ == kMaxInFlight; }
  [[nodiscard]] std::uint64_t end() const noexcept { return end_; }
  [[nodiscard]] Outgoing& at(std::uint64_t sequence) noexcept { return (*slots_)[sequence % kMaxInFlight]; }
  // Prepares the message at end(), which is not yet in flight. With `same_host`, the peer reads large
  // payloads itself.
  Outgoing& prepare(std::span<const std::byte> header, std::span<const std::byte> payload,
                    std::uint64_t token, std::uint64_t delivered, bool same_host) noexcept;
  void commit() noexcept { ++end_; }
  // Notes the number of messages that the peer has delivered to its handler.
  Result<void> apply_credit(std::uint64_t delivered);
  // Returns the token of the oldest message, once the message is done, the peer has read it, and the peer
  // keeps up.
  std::optional<std::uint64_t> pop_sent() noexcept;

 private:
  std::unique_ptr<std::array<Outgoing, kMaxInFlight>> slots_;
  std::uint64_t first_ = 0;
  std::uint64_t end_ = 0;
  std::uint64_t credited_ = 0;
};

// The count of the messages that this side has delivered to its handler. It also determines when to report
// the count to the peer.
class DeliveryCount {
 public:
  void add(bool same_host) noexcept {
    ++delivered_;
    if (same_host) awaited_ = delivered_;
  }
  [[nodiscard]] std::uint64_t delivered() const noexcept { return delivered_; }
  // Returns the count for a frame to the peer, and notes that it is reported.
  std::uint64_t mark_reported() noexcept { return reported_ = delivered_; }
  // Returns whether no frame has carried the count for long, or the sender of a same-host message waits for
  // it.
  [[nodiscard]] bool due() const noexcept {
    return delivered_ - reported_ >= kMaxInFlight || reported_ < awaited_;
  }

 private:
  std::uint64_t delivered_ = 0;
  std::uint64_t awaited_ = 0;  // the count after the last same-host message
  std::uint64_t reported_ = 0;
};

}  // namespace ckpt::transport
