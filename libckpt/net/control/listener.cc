// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/control/listener.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/net/control/spawn.h"

namespace ckpt::control {
namespace {

Result<void> remove_old_socket(const asio::generic::stream_protocol::endpoint& endpoint) {
  // A socket file without a listener is left over from a killed process.
  const std::string path = to_text(endpoint).substr(std::string_view("unix:").size());
  if (::unlink(path.c_str()) != 0 && errno != ENOENT)
    return Error::from_errno("Removing the old socket " + path);
  return ok();
}

}  // namespace

Listener::Listener(Acceptor acceptor, std::string address, Settings settings, Accept accept)
    : acceptor_(std::move(acceptor)),
      address_(std::move(address)),
      settings_(std::move(settings)),
      accept_(std::move(accept)) {}

Result<std::shared_ptr<Listener>> Listener::create(asio::any_io_executor executor, Settings settings,
                                                   Accept accept) {
  CKPT_TRY(address, parse_address(settings.address));
  if (address.loopback_only) settings.tls = {};
  if (!address.loopback_only && !settings.insecure && !settings.tls)
    return Error(ErrorCode::kRefused,
                 "Refusing to listen on " + settings.address +
                     ": it can be reached from other machines without encryption; give it a "
                     "certificate ([tls]), or say insecure = true if that network is trusted");
  const bool is_unix = address.endpoint.protocol().family() == AF_UNIX;
  if (is_unix) {
    CKPT_TRYV(remove_old_socket(address.endpoint));
  }
  boost::system::error_code code;
  Acceptor acceptor(executor);
  acceptor.open(address.endpoint.protocol(), code);
  if (!code && !is_unix) acceptor.set_option(asio::socket_base::reuse_address(true), code);
  const mode_t old_mask = is_unix ? ::umask(0177) : 0;
  if (!code) acceptor.bind(address.endpoint, code);
  if (is_unix) ::umask(old_mask);
  if (!code) acceptor.listen(asio::socket_base::max_listen_connections, code);
  if (code) return Error::from_errno(code.value(), "Listening on " + settings.address);
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
      // Out of descriptors, most likely: let some be closed before the next attempt.
      spdlog::warn("accepting on {} failed: {}", self->address_, code.message());
      pause.expires_after(std::chrono::milliseconds(100));
      co_await pause.async_wait(kTuple);
      continue;
    }
    boost::system::error_code ignored;
    const auto remote = socket.remote_endpoint(ignored);
    if (remote.protocol().family() != AF_UNIX) socket.set_option(asio::ip::tcp::no_delay(true), ignored);
    self->take(Stream(std::move(socket)), ignored ? std::string("a peer") : to_text(remote));
  }
}

void Listener::take(Stream stream, std::string peer) {
  if (auto secured = stream.use(settings_.tls); !secured) {
    spdlog::error("a connection of {} was closed: {}", peer, secured.assume_error().to_string());
    return;
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

Task<> Listener::handshake(std::shared_ptr<Listener> self, std::shared_ptr<Connection> connection) {
  auto hello = co_await Connection::receive_greeting(connection, self->token(), self->settings_.check_name);
  self->unfinished_.remove(connection);
  if (hello && !connection->is_open()) co_return;
  if (!hello) {
    spdlog::warn("dropped a connection of {} to {}: {}", connection->peer(), self->address_,
                 hello.assume_error().to_string());
    connection->close(hello.assume_error());
    co_return;
  }
  self->accept_(connection, std::move(hello).assume_value());
}

}  // namespace ckpt::control
