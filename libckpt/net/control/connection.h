// SPDX-License-Identifier: Apache-2.0
// One framed control connection, over TCP or a Unix socket. It has a bounded send queue, pings and an idle
// timeout. Its receive loop judges every header and body before it passes them on.
//
// Handshake: first that of TLS, where it is used. Then the dialer's first frame is Hello (protocol version,
// name, token); the acceptor answers HelloReply and, if it refuses, closes. Until then no other frame is
// taken and no more than one frame is read. The dialer has verified the acceptor before it sends its token.
// All of it has one deadline.
//
// A frame with a wrong magic, version, type, length or CRC, or one that the handler refuses, is logged and
// ends the connection. After a damaged frame nothing in the stream can be trusted.
//
// Threads: one io_context on one thread; every call and callback happens there. Ownership: shared; a started
// connection keeps itself alive until on_closed has been called. Errors: send returns kUnavailable once
// closed, and closes a connection whose queue is full (the peer does not read).
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/net/control/asio.h"
#include "libckpt/net/control/stream.h"
#include "libckpt/protocol/wire/commit_messages.h"
#include "libckpt/protocol/wire/control_messages.h"

namespace ckpt::control {

struct ConnectionSettings {
  std::chrono::milliseconds ping_interval{2000};
  std::chrono::milliseconds idle_timeout{10000};  // without a message for so long the peer is gone
  std::chrono::milliseconds handshake_timeout{5000};
  std::size_t max_queued_bytes = std::size_t{32} << 20;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Socket = Stream::Socket;
  // Whether a certificate may say that name; asked if there is TLS.
  using CheckName = std::function<Result<void>(const tls::Peer&, const std::string& name)>;
  struct Handlers {
    // A valid frame (pings are answered before). An error ends the connection.
    std::function<Result<void>(const wire::FrameHeader&, std::span<const std::byte> body)> on_frame;
    // Exactly once, after the last on_frame.
    std::function<void(const Error&)> on_closed;
  };

  Connection(Stream stream, std::string peer, ConnectionSettings settings);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Handshakes; call one of them once, before start().
  static Task<Result<void>> greet(std::shared_ptr<Connection> self, std::string name, std::string token);
  static Task<Result<wire::Hello>> receive_greeting(std::shared_ptr<Connection> self, std::string token,
                                                    CheckName check_name);

  void start(Handlers handlers);

  template <class M>
  Result<void> send(const M& message) {
    CKPT_TRY(frame, wire::to_frame(message, next_sequence_++));
    return send_frame(std::move(frame));
  }
  Result<void> send(const wire::CommitMessage& message);

  // Ends the connection; what is queued is dropped. on_closed follows from the event loop.
  void close(Error reason);
  [[nodiscard]] bool is_open() const noexcept { return open_; }
  [[nodiscard]] const std::string& peer() const noexcept { return peer_; }           // for logs
  [[nodiscard]] std::size_t queued_bytes() const noexcept { return queued_bytes_; }  // not sent yet
  // By its certificate; nobody without TLS.
  [[nodiscard]] const tls::Peer& certified() const noexcept { return stream_.peer(); }

 private:
  struct Frame {
    wire::FrameHeader header;
    std::vector<std::byte> body;
  };
  Result<void> send_frame(std::vector<std::byte> frame);
  // With `only`, a frame of another type is refused before its body is read.
  Task<Result<Frame>> read_frame(std::optional<wire::FrameType> only);
  Task<Result<void>> write_frame(std::vector<std::byte> frame);
  static Task<> read_loop(std::shared_ptr<Connection> self);
  static Task<> write_loop(std::shared_ptr<Connection> self);
  static Task<> watch_loop(std::shared_ptr<Connection> self);
  void limit_handshake();
  Task<Result<void>> secure(Stream::Side side);
  [[nodiscard]] Result<void> check_certified(const CheckName& check_name, const std::string& name) const;
  std::function<void(Error)> closer();
  Result<void> dispatch(const Frame& frame);

  Stream stream_;
  std::string peer_;
  ConnectionSettings settings_;
  Handlers handlers_;
  std::deque<std::vector<std::byte>> queue_;
  std::size_t queued_bytes_ = 0;
  asio::steady_timer queue_filled_;
  asio::steady_timer watch_timer_;
  std::uint64_t received_ = 0;  // headers and bodies
  std::uint64_t next_sequence_ = 1;
  bool open_ = true;
  bool started_ = false;
};

// For nodes: a certificate may say its own name alone.
Result<void> check_is_node(const tls::Peer& peer, const std::string& name);
// Equal without telling by its time where two tokens differ.
[[nodiscard]] bool same_token(std::string_view a, std::string_view b) noexcept;

}  // namespace ckpt::control
