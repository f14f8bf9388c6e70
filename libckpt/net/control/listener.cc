// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/control/listener.h"

#include <spdlog/spdlog.h>

#include "libckpt/net/control/address.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::control {
Listener::Listener(Acceptor acceptor, std::string address, Settings settings, Accept accept)
    : acceptor_(std::move(acceptor)),
      address_(std::move(address)),
      settings_(std::move(settings)),
      accept_(std::move(accept)) {}

Result<std::shared_ptr<Listener>> Listener::create(asio::any_io_executor executor, Settings settings,
                                                   Accept accept) {
  CKPT_TRY(acceptor, listen_at(executor, settings.address, static_cast<bool>(settings.tls)));
  std::string text = to_text(acceptor.local_endpoint());
  std::shared_ptr<Listener> listener(
      new Listener(std::move(acceptor), std::move(text), std::move(settings), std::move(accept)));
  spawn(executor, "accepting on " + listener->address_, accept_loop(listener));
  return listener;
}

std::string Listener::token() const {
  if (const auto* ask = std::get_if<std::function<std::string()>>(&settings_.token)) return (*ask)();
  return std::get<std::string>(settings_.token);
}

void Listener::close() {
  boost::system::error_code ignored;
  acceptor_.close(ignored);
}

Task<> Listener::accept_loop(std::shared_ptr<Listener> self) {
  asio::steady_timer pause(self->acceptor_.get_executor());
  while (self->acceptor_.is_open()) {
    auto [code, socket] = co_await self->acceptor_.async_accept(kTuple);
    if (code == asio::error::operation_aborted) co_return;
    if (code) {
      // The most likely cause is a lack of file descriptors. During the pause some descriptors may be closed
      // before the next attempt.
      self->log_refused(self->unknown_refused_, "a peer", "accepting failed: " + code.message());
      pause.expires_after(std::chrono::milliseconds(100));
      co_await pause.async_wait(kTuple);
      continue;
    }
    self->accept_socket(std::move(socket));
  }
}

void Listener::accept_socket(Stream::Socket socket) {
  boost::system::error_code failed;
  const auto remote = socket.remote_endpoint(failed);
  std::string peer = failed ? std::string("a peer") : to_text(remote);
  const bool local = is_unix(acceptor_);
  if (local && !is_trusted_user(user_of(socket))) {
    return log_refused(unknown_refused_, "another user", "only root and this user may connect");
  }
  if (!local) socket.set_option(asio::ip::tcp::no_delay(true), failed);
  Stream stream(std::move(socket));
  if (auto secured = local ? ok() : stream.use(settings_.tls); !secured) {
    return log_refused(unknown_refused_, peer, secured.error().to_string());
  }
  if (unfinished_.size() >= kMaxHandshakes) {
    const std::shared_ptr<Connection> oldest = unfinished_.front();
    unfinished_.pop_front();
    oldest->close(Error(ErrorCode::kRefused, "Too many unfinished handshakes, and this one is the oldest"));
  }
  auto connection = std::make_shared<Connection>(std::move(stream), std::move(peer), settings_.connection);
  unfinished_.push_back(connection);
  spawn(acceptor_.get_executor(), "handshake with " + connection->peer(),
        handshake(shared_from_this(), connection));
}

void Listener::log_refused(LogThrottle& turns, const std::string& peer, const std::string& reason) {
  if (const auto left_out = turns.turn(now_ns()))
    spdlog::warn("dropped a connection of {} to {}: {} ({} similar messages suppressed)", peer, address_,
                 reason, *left_out);
}

Task<> Listener::handshake(std::shared_ptr<Listener> self, std::shared_ptr<Connection> connection) {
  auto hello = co_await Connection::receive_greeting(connection, self->token(), self->settings_.check_name);
  self->unfinished_.remove(connection);
  if (hello && !connection->is_open()) co_return;
  if (!hello) {
    const bool is_unknown = connection->certified().kind == tls::Peer::Kind::kNobody;
    self->log_refused(is_unknown ? self->unknown_refused_ : self->owners_refused_, connection->peer(),
                      hello.error().to_string());
    connection->close(hello.error());
    co_return;
  }
  self->accept_(connection, *std::move(hello));
}

}  // namespace ckpt::control
