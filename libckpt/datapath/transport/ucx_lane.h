// SPDX-License-Identifier: Apache-2.0
// A lane over one UCX worker. The target's worker listens on a socket address. A peer that connects is
// unauthenticated until its first frame (HELLO) shows the session token. Then the listener ends, other
// unauthenticated peers are dropped, and WELCOME opens the lane at both ends. UCX's callbacks only record
// events; most other work follows in progress().
//
// A lane ends with BYE. After it neither end drives its worker again, and messages in flight are dropped.
// ucx_guard.h prevents UCX from ending the process when a connection is lost. Threads, ownership and errors:
// transport.h.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "libckpt/base/fd.h"
#include "libckpt/datapath/transport/lane_waker.h"
#include "libckpt/datapath/transport/ucx_context.h"
#include "libckpt/datapath/transport/ucx_windows.h"

namespace ckpt::transport {

inline constexpr unsigned kActiveMessageId = 1;

class UcxLane final : public Lane {
 public:
  static Result<std::unique_ptr<UcxLane>> listen(std::shared_ptr<const UcxContext> context,
                                                 const SessionToken& token, LaneHandler& handler);
  static Result<std::unique_ptr<UcxLane>> connect(std::shared_ptr<const UcxContext> context,
                                                  const LaneAddress& address, const SessionToken& token,
                                                  LaneHandler& handler);
  ~UcxLane() override;

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
  // A connection. It stays at a fixed address, since UCX's error handler points to it.
  struct Connection {
    ucp_ep_h endpoint = nullptr;
    std::optional<ucs_status_t> failed;
    bool unwanted = false;  // whether the connection is dropped in the next progress()
  };

  UcxLane(std::shared_ptr<const UcxContext> context, const SessionToken& token, LaneHandler& handler,
          bool listening)
      : context_(std::move(context)), token_(token), handler_(handler), listening_(listening) {}
  Result<void> start();
  Result<void> start_listener();
  Result<std::unique_ptr<Connection>> make_connection(ucp_ep_params_t& params);
  Result<void> send_control(ucp_ep_h endpoint, FrameKind kind);

  static void on_connection_request(ucp_conn_request_h request, void* lane);
  static void on_endpoint_error(void* connection, ucp_ep_h endpoint, ucs_status_t status);
  static ucs_status_t on_active_message(void* lane, const void* header, std::size_t header_bytes, void* data,
                                        std::size_t bytes, const ucp_am_recv_param_t* param);
  void handle_frame(const FrameView& view, void* data, const ucp_am_recv_param_t& param);
  void handle_hello(const FrameView& view, Connection& connection);
  Connection* find_unauthenticated(ucp_ep_h endpoint);

  void admit_requests();
  void drop_unauthenticated();
  void open();
  bool progress_armed();
  bool deliver();
  void give_credit();
  std::optional<Error> failure() const;
  void fail(Error error);
  void send_goodbye();
  void disconnect(Connection& connection);
  void shut_down();
  void finish(Error reason);

  std::shared_ptr<const UcxContext> context_;
  const SessionToken token_;
  LaneHandler& handler_;
  const bool listening_;
  std::string address_;
  std::size_t outstanding_ = 0;  // the number of requests that UCX holds; declared before the windows, which
                                 // update it
  SendWindow sends_;
  ReceiveWindow receives_;
  SameHostOffer offer_;  // in connecting lanes: the offer of this process's memory
  PayloadAccess payload_access_ = PayloadAccess::kSent;  // the peer's access to this process's memory
  SameHostPeer same_host_;                               // in listening lanes: the peer's memory
  std::array<std::byte, kMaxHelloBytes> control_frame_{};
  bool control_busy_ = false;  // whether UCX still reads control_frame_
  std::unique_ptr<LaneWaker> waker_;
  int worker_fd_ = -1;  // a descriptor that UCX owns
  UniqueUcpWorker worker_;
  UniqueUcpListener listener_;
  std::vector<ucp_conn_request_h> requests_;
  std::vector<std::unique_ptr<Connection>> unauthenticated_peers_;
  std::unique_ptr<Connection> peer_;
  bool greeted_ = false;  // whether the peer showed the token, so that on_open must be called
  bool open_ = false;
  bool peer_left_ = false;  // whether the peer's BYE has arrived
  bool in_callback_ = false;
  bool close_requested_ = false;
  std::optional<Error> failed_;
  std::optional<Error> closed_reason_;
};

}  // namespace ckpt::transport
