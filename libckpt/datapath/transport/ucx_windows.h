// SPDX-License-Identifier: Apache-2.0
// A UCX lane's messages in flight: a ring of sends and a ring of receives, both made once. They put UCX's
// completions, which arrive in any order, back into the order of send().
// Threads: the lane's. A ring must stay at its address while requests are outstanding. Errors: kProtocol for
// frames that break the rules, otherwise UCX's own.
#pragma once

#include <ucp/api/ucp.h>

#include <array>
#include <memory>
#include <optional>

#include "libckpt/datapath/transport/frames.h"
#include "libckpt/datapath/transport/same_host_memory.h"
#include "libckpt/datapath/transport/transport.h"

namespace ckpt::transport {

class SendWindow {
 public:
  SendWindow() : requests_(std::make_unique<std::array<Request, kMaxInFlight>>()) {}

  [[nodiscard]] bool full() const noexcept { return ring_.full(); }
  // Sends a message. `outstanding` counts requests that UCX still holds; `payload` and `outstanding` must
  // stay valid until these are done. `delivered` is sent in the frame. With `same_host`, the peer reads large
  // payloads itself.
  Result<void> send(ucp_ep_h endpoint, std::span<const std::byte> header, std::span<const std::byte> payload,
                    std::uint64_t token, std::uint64_t delivered, bool same_host, std::size_t& outstanding);
  // Notes the number of messages that the peer has delivered to its handler.
  Result<void> apply_credit(std::uint64_t delivered) { return ring_.apply_credit(delivered); }
  // Returns the token of the oldest message, once UCX is done with it, the peer has read it, and the peer
  // keeps up.
  std::optional<std::uint64_t> pop_sent() noexcept { return ring_.pop_sent(); }

 private:
  // The UCX request of the message at the same position in the ring.
  struct Request {
    Outgoing* message = nullptr;
    std::size_t* outstanding = nullptr;
  };
  static void on_done(void* request, ucs_status_t status, void* of_message);

  OutgoingRing ring_;
  std::unique_ptr<std::array<Request, kMaxInFlight>> requests_;
};

class ReceiveWindow {
 public:
  static constexpr std::size_t kSlots = kMaxInFlight + kMaxAhead;

  ReceiveWindow() : slots_(std::make_unique<std::array<Slot, kSlots>>()) {}

  // Accepts the message. Payloads by rendezvous continue automatically. `same_host` is the peer's memory;
  // without a reader, the peer may not send messages whose payload this side reads.
  Result<void> accept(ucp_worker_h worker, const FrameView& view, void* data, bool rendezvous,
                      const SameHostPeer& same_host, LaneHandler& handler, std::size_t& outstanding);
  struct Delivery {
    std::span<const std::byte> header;
    std::span<const std::byte> payload;
  };
  // Returns the next message in order, if it is complete. It is valid until pop().
  [[nodiscard]] std::optional<Delivery> front() const noexcept;
  void pop() noexcept;
  [[nodiscard]] DeliveryCount& count() noexcept { return count_; }
  // Returns the failure of a rendezvous, after which the lane must be closed.
  [[nodiscard]] std::optional<ucs_status_t> failure() const noexcept { return failure_; }

 private:
  enum class State : std::uint8_t { kEmpty, kReceiving, kReady };
  struct Slot {
    std::array<std::byte, kMaxHeaderBytes> header{};
    std::size_t header_bytes = 0;
    std::span<const std::byte> payload;
    State state = State::kEmpty;
    bool same_host = false;
    ReceiveWindow* window = nullptr;
    std::size_t* outstanding = nullptr;
  };
  static void on_done(void* request, ucs_status_t status, std::size_t length, void* slot);
  Result<void> start_rendezvous(ucp_worker_h worker, Slot& slot, std::span<std::byte> to, void* data,
                                std::size_t& outstanding);

  std::unique_ptr<std::array<Slot, kSlots>> slots_;
  DeliveryCount count_;
  std::optional<ucs_status_t> failure_;
};

}  // namespace ckpt::transport
