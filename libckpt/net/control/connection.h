// SPDX-License-Identifier: Apache-2.0
// One framed control connection, over TCP or a Unix socket. It has a bounded send queue, pings and an idle
// timeout. Its receive loop validates every header and body before it passes them on.
//
// The handshake begins with TLS, where TLS is used. The dialer's first frame is Hello (protocol version,
// name, token). The acceptor answers with HelloReply; if it refuses the dialer, it then closes the
// connection. Before the handshake is complete, no other frame is accepted and at most one frame is read. The
// dialer has verified the acceptor before it sends its token. One deadline covers the whole handshake.
//
// A frame with a wrong magic, version, type, length or CRC is logged and closes the connection. A frame that
// the handler refuses has the same effect. After a damaged frame nothing in the stream can be trusted.
//
// Threads: one io_context on one thread; every call and callback runs there. Ownership: shared; a started
// connection keeps itself alive until on_closed has been called. Errors: send returns kUnavailable after the
// connection has closed. send closes a connection whose queue is full, since its peer does not read.
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
  std::chrono::milliseconds idle_timeout{10000};  // the time without a message after which the peer counts as
                                                  // disconnected
  std::chrono::milliseconds handshake_timeout{5000};
  std::size_t max_queued_bytes = std::size_t{32} << 20;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Socket = Stream::Socket;
  // Checks whether the holder of a certificate may use a name. Called only for connections with TLS.
  using CheckName = std::function<Result<void>(const tls::Peer&, const std::string& name)>;
  struct Handlers {
    // Receives a valid frame. Pings are answered before it is called. An error closes the connection.
    std::function<Result<void>(const wire::FrameHeader&, std::span<const std::byte> body)> on_frame;
    // A function that is called exactly once, with the reason, after the last on_frame.
    std::function<void(const Error&)> on_closed;
  };

  Connection(Stream stream, std::string peer, ConnectionSettings settings);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Performs the handshake. Call one of these functions once, before start().
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

  // Closes the connection and drops queued frames. The event loop then calls on_closed.
  void close(Error reason);
  [[nodiscard]] bool is_open() const noexcept { return open_; }
  [[nodiscard]] const std::string& peer() const noexcept { return peer_; }  // the peer's name for logs
  // Returns the number of queued bytes that are not sent yet.
  [[nodiscard]] std::size_t queued_bytes() const noexcept { return queued_bytes_; }
  // Returns the peer that the other side's certificate names. Returns nobody without TLS.
  [[nodiscard]] const tls::Peer& certified() const noexcept { return stream_.peer(); }

 private:
  struct Frame {
    wire::FrameHeader header;
    std::vector<std::byte> body;
  };
  Result<void> send_frame(std::vector<std::byte> frame);
  // Reads the next frame. With `only`, a frame of a different type is refused before its body is read.
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
  std::uint64_t received_ = 0;  // the bytes of received headers and bodies
  std::uint64_t next_sequence_ = 1;
  bool open_ = true;
  bool started_ = false;
};

// Checks that a node uses the name in its own certificate and no other name.
Result<void> check_is_node(const tls::Peer& peer, const std::string& name);
// Compares tokens in constant time, so that the duration does not reveal where they differ.
[[nodiscard]] bool same_token(std::string_view a, std::string_view b) noexcept;

}  // namespace ckpt::control
