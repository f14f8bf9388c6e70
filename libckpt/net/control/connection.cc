// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/control/connection.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "libckpt/base/log_throttle.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::control {
namespace {

using std::chrono::steady_clock;

Error socket_error(const std::string& what, const std::string& peer, const boost::system::error_code& code) {
  if (code == asio::error::eof) return {ErrorCode::kUnavailable, peer + " closed the connection"};
  return {ErrorCode::kUnavailable, what + " " + peer + " failed: " + code.message()};
}

// Logs a dropped message at a limited rate, since a peer may reconnect and send the same message again.
void log_dropped(const std::string& what, const std::string& peer, const Error& cause) {
  static thread_local LogThrottle dropped;
  if (const auto left_out = dropped.turn(now_ns()))
    spdlog::warn("dropped {} and the connection of {}: {} ({} similar messages suppressed)", what, peer,
                 cause.to_string(), *left_out);
}

}  // namespace

Result<void> check_is_node(const tls::Peer& peer, const std::string& name) {
  if (peer == tls::Peer::node(name)) return ok();
  return Error(ErrorCode::kRefused, "the certificate is that of " + to_text(peer) + ", not of node " + name);
}

bool same_token(std::string_view a, std::string_view b) noexcept {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

Connection::Connection(Stream stream, std::string peer, ConnectionSettings settings)
    : stream_(std::move(stream)),
      peer_(std::move(peer)),
      settings_(settings),
      queue_filled_(stream_.get_executor(), steady_clock::time_point::max()),
      watch_timer_(stream_.get_executor()) {}

Task<Result<void>> Connection::write_frame(std::vector<std::byte> frame) {
  const auto [code, written] = co_await asio::async_write(stream_, asio::buffer(frame), kTuple);
  if (code) co_return socket_error("Writing to", peer_, code);
  co_return ok();
}

Task<Result<Connection::Frame>> Connection::read_frame(std::optional<wire::FrameType> only) {
  std::array<std::byte, wire::kFrameHeaderBytes> head{};
  const auto [head_code, head_read] = co_await asio::async_read(stream_, asio::buffer(head), kTuple);
  if (head_code) co_return socket_error("Reading from", peer_, head_code);
  ++received_;
  Frame frame;
  CKPT_CO_TRY(header, wire::parse_header(head));
  frame.header = header;
  if (only && frame.header.type != *only)
    co_return Error(ErrorCode::kProtocol, "Frame " + std::string(wire::to_string(frame.header.type)) +
                                              " where " + std::string(wire::to_string(*only)) +
                                              " was expected");
  frame.body.resize(frame.header.body_bytes);
  const auto [body_code, body_read] = co_await asio::async_read(stream_, asio::buffer(frame.body), kTuple);
  if (body_code) co_return socket_error("Reading from", peer_, body_code);
  CKPT_CO_TRYV(wire::check_body(frame.header, frame.body));
  ++received_;
  co_return frame;
}

Task<Result<void>> Connection::greet(std::shared_ptr<Connection> self, std::string name, std::string token) {
  self->limit_handshake();
  CKPT_CO_TRYV(co_await self->secure(Stream::Side::kDials));
  wire::Hello hello;
  hello.name = std::move(name);
  hello.token = std::move(token);
  CKPT_CO_TRY(hello_frame, wire::to_frame(hello, self->next_sequence_++));
  CKPT_CO_TRYV(co_await self->write_frame(std::move(hello_frame)));
  CKPT_CO_TRY(frame, co_await self->read_frame(wire::FrameType::kHelloReply));
  CKPT_CO_TRY(reply, wire::decode<wire::HelloReply>(frame.body));
  self->watch_timer_.cancel();
  if (!reply.accepted)
    co_return Error(ErrorCode::kRefused, self->peer_ + " refused the connection: " + reply.reason);
  co_return ok();
}

Task<Result<wire::Hello>> Connection::receive_greeting(std::shared_ptr<Connection> self, std::string token,
                                                       CheckName check_name) {
  self->limit_handshake();
  CKPT_CO_TRYV(co_await self->secure(Stream::Side::kAccepts));
  CKPT_CO_TRY(frame, co_await self->read_frame(wire::FrameType::kHello));
  CKPT_CO_TRY(hello, wire::decode<wire::Hello>(frame.body));
  wire::HelloReply reply;
  if (hello.version != wire::kControlVersion)
    reply.reason = "the connecting process uses version " + std::to_string(hello.version) +
                   " of the control messages, but the listening process uses version " +
                   std::to_string(wire::kControlVersion);
  else if (!same_token(hello.token, token))
    reply.reason = "wrong token";
  else if (auto named = self->check_certified(check_name, hello.name); !named)
    reply.reason = named.error().message();
  reply.accepted = reply.reason.empty();
  CKPT_CO_TRY(reply_frame, wire::to_frame(reply, self->next_sequence_++));
  CKPT_CO_TRYV(co_await self->write_frame(std::move(reply_frame)));
  self->watch_timer_.cancel();
  if (!reply.accepted) co_return Error(ErrorCode::kRefused, "Refused " + self->peer_ + ": " + reply.reason);
  co_return std::move(hello);
}

Task<Result<void>> Connection::secure(Stream::Side side) {
  // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): clang 14 does not know that a coroutine's frame is made
  auto secured = co_await stream_.handshake(side);
  if (secured) co_return ok();
  Error error = std::move(secured).error();
  co_return Error(error.code(), peer_ + ": " + error.to_string());
}

Result<void> Connection::check_certified(const CheckName& check_name, const std::string& name) const {
  CKPT_TRYV(stream_.still_admitted());
  if (certified().kind == tls::Peer::Kind::kNobody || !check_name) return ok();
  return check_name(certified(), name);
}

void Connection::limit_handshake() {
  watch_timer_.expires_after(settings_.handshake_timeout);
  watch_timer_.async_wait([self = shared_from_this()](boost::system::error_code code) {
    if (!code && !self->started_) self->stream_.close();
  });
}

void Connection::start(Handlers handlers) {
  handlers_ = std::move(handlers);
  started_ = true;
  const auto executor = stream_.get_executor();
  spawn(executor, "reading from " + peer_, read_loop(shared_from_this()), closer());
  spawn(executor, "writing to " + peer_, write_loop(shared_from_this()), closer());
  spawn(executor, "watching " + peer_, watch_loop(shared_from_this()), closer());
}

std::function<void(Error)> Connection::closer() {
  return [self = shared_from_this()](Error error) { self->close(std::move(error)); };
}

Result<void> Connection::send(const wire::CommitMessage& message) {
  CKPT_TRY(frame, wire::make_frame(wire::FrameType::kCommit, next_sequence_++, wire::encode_commit(message)));
  return send_frame(std::move(frame));
}

Result<void> Connection::send_frame(std::vector<std::byte> frame) {
  if (!open_) return Error(ErrorCode::kUnavailable, "Connection to " + peer_ + " is closed");
  if (queued_bytes_ + frame.size() > settings_.max_queued_bytes) {
    Error full(ErrorCode::kUnavailable, peer_ + " does not read its connection: more than " +
                                            std::to_string(settings_.max_queued_bytes) +
                                            " bytes are queued for it");
    close(full);
    return full;
  }
  queued_bytes_ += frame.size();
  queue_.push_back(std::move(frame));
  queue_filled_.cancel();
  return ok();
}

void Connection::close(Error reason) {
  if (!open_) return;
  open_ = false;
  stream_.close();
  queue_filled_.cancel();
  watch_timer_.cancel();
  queue_.clear();
  queued_bytes_ = 0;
  asio::post(stream_.get_executor(), [self = shared_from_this(), reason = std::move(reason)] {
    Handlers handlers = std::move(self->handlers_);
    self->handlers_ = {};
    if (handlers.on_closed) handlers.on_closed(reason);
  });
}

Result<void> Connection::dispatch(const Frame& frame) {
  if (frame.header.type == wire::FrameType::kPing) {
    CKPT_TRY(ping, wire::decode<wire::Ping>(frame.body));
    wire::Pong pong;
    pong.cookie = ping.cookie;
    return send(pong);
  }
  if (frame.header.type == wire::FrameType::kPong) return ok();
  return handlers_.on_frame(frame.header, frame.body);
}

Task<> Connection::read_loop(std::shared_ptr<Connection> self) {
  while (self->open_) {
    auto frame = co_await self->read_frame(std::nullopt);
    if (!self->open_) co_return;
    if (!frame) {
      const Error& error = frame.error();
      if (error.code() != ErrorCode::kUnavailable) log_dropped("a frame", self->peer_, error);
      self->close(error);
      co_return;
    }
    if (auto dispatched = self->dispatch(*frame); !dispatched) {
      log_dropped("a " + std::string(wire::to_string(frame->header.type)) + " frame", self->peer_,
                  dispatched.error());
      self->close(dispatched.error());
      co_return;
    }
  }
}

Task<> Connection::write_loop(std::shared_ptr<Connection> self) {
  while (self->open_) {
    if (self->queue_.empty()) {
      co_await self->queue_filled_.async_wait(kTuple);
      continue;
    }
    std::vector<std::byte> frame = std::move(self->queue_.front());
    self->queue_.pop_front();
    const std::size_t bytes = frame.size();
    auto written = co_await self->write_frame(std::move(frame));
    if (!self->open_) co_return;
    self->queued_bytes_ -= bytes;
    if (!written) {
      self->close(written.error());
      co_return;
    }
  }
}

// Counts only time in which this process could receive, in intervals. While this process was stopped or its
// loop was busy, the peer may have sent data that is still unread.
Task<> Connection::watch_loop(std::shared_ptr<Connection> self) {
  steady_clock::duration silent{0};
  while (self->open_) {
    const auto began = steady_clock::now();
    const std::uint64_t heard = self->received_;
    self->watch_timer_.expires_after(self->settings_.ping_interval);
    co_await self->watch_timer_.async_wait(kTuple);
    if (!self->open_) co_return;
    const steady_clock::duration listened = steady_clock::now() - began;
    silent += std::min<steady_clock::duration>(listened, self->settings_.ping_interval);
    boost::system::error_code ignored;
    if (self->received_ != heard || self->stream_.socket().available(ignored) > 0) silent = {};
    if (silent >= self->settings_.idle_timeout) {
      self->close(Error(ErrorCode::kTimedOut, "No data arrived from " + self->peer_ + " for " +
                                                  std::to_string(self->settings_.idle_timeout.count()) +
                                                  " ms"));
      co_return;
    }
    wire::Ping ping;
    if (!self->send(ping)) co_return;
  }
}

}  // namespace ckpt::control
