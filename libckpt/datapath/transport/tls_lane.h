// SPDX-License-Identifier: Apache-2.0
// A lane over one TCP connection with TLS 1.3 (libckpt/net/tls). Both ends derive the connection's key from
// the session token, and its identity is the listening address. The key therefore belongs to this session and
// this lane. Frames are those of UCX's lane (frames.h), one after another in the stream, each followed by its
// payload. Payloads are decrypted into the caller's memory.
//
// Each progress() reads and writes up to a limit, so that neither direction waits for the other. Threads,
// ownership and errors: transport.h.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "libckpt/base/fd.h"
#include "libckpt/datapath/transport/frames.h"
#include "libckpt/datapath/transport/lane_waker.h"
#include "libckpt/datapath/transport/tls_gate.h"

namespace ckpt::transport {

class TlsLane final : public Lane {
 public:
  static Result<std::unique_ptr<TlsLane>> listen(std::shared_ptr<const tls::PskContext> context,
                                                 const LaneAddress& local, const TlsOptions& options,
                                                 const SessionToken& token, LaneHandler& handler);
  // Connects a lane. `name` is the listening lane's address, as that lane reported it.
  static Result<std::unique_ptr<TlsLane>> connect(std::shared_ptr<const tls::PskContext> context,
                                                  const LaneAddress& local, const TlsOptions& options,
                                                  const LaneAddress& remote, const std::string& name,
                                                  const SessionToken& token, LaneHandler& handler);
  ~TlsLane() override;

  [[nodiscard]] std::string address() const override { return address_; }
  Result<void> send(std::span<const std::byte> header, std::span<const std::byte> payload,
                    std::uint64_t token) override;
  [[nodiscard]] PayloadAccess payload_access() const noexcept override { return payload_access_; }
  bool progress() override;
  void wait(Nanos timeout) override;
  void wake() noexcept override;
  void close() override;
  [[nodiscard]] bool closed() const noexcept override { return closed_reason_.has_value(); }

 private:
  TlsLane(const TlsOptions& options, const SessionToken& token, LaneHandler& handler,
          std::unique_ptr<LaneWaker> waker)
      : rekey_bytes_(options.rekey_bytes), token_(token), handler_(handler), waker_(std::move(waker)) {}

  bool approach();
  bool greet();
  void take_peer(TlsGate::Arrival arrival);
  void open();

  bool receive();
  Result<std::size_t> receive_some();
  Result<void> handle_frame(const FrameView& view);
  Result<void> begin_message(const FrameView& view);
  Result<void> end_payload();
  void deliver(std::span<const std::byte> payload);

  bool report_sent();
  bool transmit();
  Result<std::size_t> transmit_some(std::size_t max_bytes);
  Result<bool> start_frame();
  Result<bool> send_control(FrameKind kind);
  [[nodiscard]] bool can_transmit() const noexcept;

  void fail(Error error);
  void shut_down();
  void finish(Error reason);

  const std::uint64_t rekey_bytes_;
  const SessionToken token_;
  LaneHandler& handler_;
  std::string address_;
  const std::unique_ptr<LaneWaker> waker_;
  std::unique_ptr<TlsGate> gate_;  // the gate of a listening lane; set until the peer has connected
  std::unique_ptr<tls::PskStream> stream_;

  SameHostOffer offer_;  // in connecting lanes: the offer of this process's memory
  PayloadAccess payload_access_ = PayloadAccess::kSent;  // the peer's access to this process's memory
  SameHostPeer same_host_;                               // in listening lanes: the peer's memory

  FrameReader frames_;
  FrameView message_;                    // the message that is arriving, whose header is in frames_
  std::span<std::byte> payload_;         // the destination of the payload that is arriving
  std::size_t arrived_ = 0;              // the number of bytes of payload_ that have arrived
  std::uint64_t same_host_address_ = 0;  // the address of payload_ at the peer on this host
  bool drained_ = true;                  // whether the stream had no more data
  DeliveryCount count_;

  OutgoingRing sends_;
  std::uint64_t next_ = 0;              // the number of the next message to transmit
  std::span<const std::byte> leaving_;  // the rest of the payload of the message that is being transmitted
  bool in_message_ = false;
  bool welcome_due_ = false;

  bool hello_sent_ = false;
  bool open_ = false;
  bool peer_left_ = false;  // whether the peer's BYE has arrived
  bool in_callback_ = false;
  bool close_requested_ = false;
  std::optional<Error> failed_;
  std::optional<Error> closed_reason_;
};

}  // namespace ckpt::transport
