// SPDX-License-Identifier: Apache-2.0
// A UCX lane's messages in flight: a ring of sends and a ring of receives, both made once. They put
// completions of UCX, which come in any order, back into the order of send(). Threads: the lane's. A ring
// must stay where it is while requests are outstanding. Errors: kProtocol for frames that break the rules,
// UCX's own else.
#pragma once

#include <ucp/api/ucp.h>

#include <array>
#include <memory>
#include <optional>

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

// Before each header on the wire, little-endian as both ends are x86-64 or AArch64 hosts of GPUs.
struct Frame {
  static constexpr std::uint32_t kMagic = 0x31544b43;  // "CKT1"
  std::uint32_t magic = kMagic;
  FrameKind kind = FrameKind::kMessage;
  std::uint16_t header_bytes = 0;
  std::uint64_t sequence = 0;
  // Of kSameHost the payload stays in the sender's memory, and its address follows in its place.
  std::uint64_t payload_bytes = 0;
  std::uint64_t delivered = 0;  // messages of the other side that this side has delivered
};
static_assert(sizeof(Frame) == 32);

// A frame that came, checked against the limits; `header` lies in UCX's memory.
struct FrameView {
  Frame frame;
  std::span<const std::byte> header;
};
Result<FrameView> parse_frame(const void* header, std::size_t header_bytes, std::size_t payload_bytes);

// Payloads from this size on go by rendezvous, straight to where the receiver wants them.
inline constexpr std::size_t kRendezvousBytes = 32 * 1024;

// UCX is done with a small message as soon as a socket has it, so a sender alone would never be held back: a
// message is reported as sent at most this far ahead of the messages that the peer has delivered.
inline constexpr std::uint64_t kMaxAhead = 2 * kMaxInFlight;

class SendWindow {
 public:
  SendWindow() : slots_(std::make_unique<std::array<Slot, kMaxInFlight>>()) {}

  [[nodiscard]] bool full() const noexcept { return end_ - first_ == kMaxInFlight; }
  // `outstanding` counts requests that UCX still holds; both stay valid until they are done.
  // `delivered` travels in the frame. `near`: the peer reads large payloads itself.
  Result<void> send(ucp_ep_h endpoint, std::span<const std::byte> header, std::span<const std::byte> payload,
                    std::uint64_t token, std::uint64_t delivered, bool near, std::size_t& outstanding);
  // The peer reports how many messages it has delivered to its handler.
  Result<void> take_credit(std::uint64_t delivered);
  // The token of the oldest message, once UCX is done with it, the peer has read it and keeps up.
  std::optional<std::uint64_t> pop_sent() noexcept;

 private:
  struct Slot {
    std::array<std::byte, sizeof(Frame) + kMaxHeaderBytes> header{};
    std::uint64_t token = 0;
    std::uint64_t address = 0;  // of a near payload
    std::size_t* outstanding = nullptr;
    bool done = false;
    bool near = false;
  };
  static void on_done(void* request, ucs_status_t status, void* slot);

  std::unique_ptr<std::array<Slot, kMaxInFlight>> slots_;
  std::uint64_t first_ = 0;
  std::uint64_t end_ = 0;
  std::uint64_t credited_ = 0;
};

class ReceiveWindow {
 public:
  static constexpr std::size_t kSlots = kMaxInFlight + kMaxAhead;

  ReceiveWindow() : slots_(std::make_unique<std::array<Slot, kSlots>>()) {}

  // Takes the message in; payloads by rendezvous go on by themselves. `near`: null if the peer may not send
  // near ones.
  Result<void> accept(ucp_worker_h worker, const FrameView& view, void* data, bool rendezvous,
                      const SameHostReader* near, const SameHostMapping& mapping, LaneHandler& handler,
                      std::size_t& outstanding);
  struct Delivery {
    std::span<const std::byte> header;
    std::span<const std::byte> payload;
  };
  // The next message in order, if it is complete; valid until pop().
  [[nodiscard]] std::optional<Delivery> front() const noexcept;
  void pop() noexcept;
  [[nodiscard]] std::uint64_t delivered() const noexcept { return next_; }
  // The value of delivered() behind the last same-host message: its sender waits for so many.
  [[nodiscard]] std::uint64_t awaited() const noexcept { return awaited_; }
  // A rendezvous failed: the lane has to end.
  [[nodiscard]] std::optional<ucs_status_t> failure() const noexcept { return failure_; }

 private:
  enum class State : std::uint8_t { kEmpty, kReceiving, kReady };
  struct Slot {
    std::array<std::byte, kMaxHeaderBytes> header{};
    std::size_t header_bytes = 0;
    std::span<const std::byte> payload;
    State state = State::kEmpty;
    bool near = false;
    ReceiveWindow* window = nullptr;
    std::size_t* outstanding = nullptr;
  };
  static void on_done(void* request, ucs_status_t status, std::size_t length, void* slot);
  static Result<void> read_same_host(const SameHostReader& near, const SameHostMapping& mapping,
                                     const void* data, std::size_t bytes, Slot& slot, LaneHandler& handler);
  Result<void> start_rendezvous(ucp_worker_h worker, Slot& slot, std::span<std::byte> to, void* data,
                                std::size_t& outstanding);

  std::unique_ptr<std::array<Slot, kSlots>> slots_;
  std::uint64_t next_ = 0;
  std::uint64_t awaited_ = 0;
  std::optional<ucs_status_t> failure_;
};

}  // namespace ckpt::transport
