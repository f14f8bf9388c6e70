// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/control/dialer.h"

#include <spdlog/spdlog.h>

#include <array>

#include "libckpt/base/random.h"
#include "libckpt/net/control/address.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::control {
namespace {

constexpr std::chrono::milliseconds kMinBackoff{50};

std::uint8_t chance() {
  std::array<std::byte, 1> drawn{};
  if (!fill_random(drawn)) return UINT8_MAX;  // without random bytes, the full backoff is used, which is safe
  return std::to_integer<std::uint8_t>(drawn.front());
}

}  // namespace

std::chrono::milliseconds with_jitter(std::chrono::milliseconds backoff, std::uint8_t chance) noexcept {
  return backoff - backoff / 2 * (UINT8_MAX - chance) / UINT8_MAX;
}

Dialer::Dialer(asio::any_io_executor executor, Settings settings, Handlers handlers)
    : executor_(executor), settings_(std::move(settings)), handlers_(std::move(handlers)), wake_(executor) {}

std::shared_ptr<Dialer> Dialer::create(asio::any_io_executor executor, Settings settings, Handlers handlers) {
  return std::shared_ptr<Dialer>(new Dialer(executor, std::move(settings), std::move(handlers)));
}

void Dialer::start() {
  spawn(executor_, "connection to " + settings_.label, run(shared_from_this()));
}

void Dialer::stop() {
  stopped_ = true;
  if (connection_) connection_->close(Error(ErrorCode::kAborted, "Stopped"));
  wake_.cancel();
}

Task<Result<std::shared_ptr<Connection>>> Dialer::connect(std::shared_ptr<Dialer> self) {
  CKPT_CO_TRY(text, self->settings_.address());
  CKPT_CO_TRY(address, parse_address(text));
  if (!address.is_unix && !self->settings_.tls)
    co_return Error(ErrorCode::kRefused,
                    "There is no certificate ([tls]) to reach " + self->settings_.label + " with at " + text +
                        ": the token must not be sent to a peer that cannot be verified");
  CKPT_CO_TRY(token, self->settings_.token());
  auto socket = std::make_shared<Connection::Socket>(self->executor_);
  asio::steady_timer deadline(self->executor_, self->settings_.connection.handshake_timeout);
  deadline.async_wait([socket](boost::system::error_code code) {
    boost::system::error_code ignored;
    if (!code) socket->close(ignored);
  });
  const auto [code] = co_await socket->async_connect(address.endpoint, kTuple);
  const bool in_time = deadline.cancel() == 1;
  if (code || !in_time)
    co_return Error(ErrorCode::kUnavailable, "Connecting to " + self->settings_.label + " at " + text +
                                                 " failed: " + (code ? code.message() : "no answer"));
  boost::system::error_code ignored;
  if (!address.is_unix) socket->set_option(asio::ip::tcp::no_delay(true), ignored);
  Stream stream(std::move(*socket));
  if (!address.is_unix) {
    CKPT_CO_TRYV(stream.use(self->settings_.tls));
  }
  auto connection =
      std::make_shared<Connection>(std::move(stream), self->settings_.label, self->settings_.connection);
  auto greeted = co_await Connection::greet(connection, self->settings_.name, token);
  if (!greeted) {
    connection->close(greeted.error());
    co_return greeted.error();
  }
  co_return connection;
}

void Dialer::serve(std::shared_ptr<Connection> connection) {
  connection_ = connection;
  Connection::Handlers handlers;
  handlers.on_frame = handlers_.on_frame;
  // A weak pointer, since this object owns the connection. run() keeps this object alive until the event loop
  // ends at the latest.
  handlers.on_closed = [weak = weak_from_this()](const Error& reason) {
    const auto self = weak.lock();
    if (!self) return;
    self->connection_.reset();
    const auto level = self->stopped_ ? spdlog::level::debug : spdlog::level::warn;
    spdlog::log(level, "lost the connection to {}: {}", self->settings_.label, reason.to_string());
    if (self->handlers_.on_lost) self->handlers_.on_lost(reason);
    self->wake_.cancel();
  };
  connection->start(std::move(handlers));
  spdlog::info("connected to {}", settings_.label);
  if (handlers_.on_connected) handlers_.on_connected(*connection);
}

Task<> Dialer::pause(std::chrono::milliseconds backoff) {
  if (stopped_) co_return;
  wake_.expires_after(with_jitter(backoff, chance()));
  co_await wake_.async_wait(kTuple);
}

Task<> Dialer::run(std::shared_ptr<Dialer> self) {
  auto backoff = kMinBackoff;
  bool first_failure = true;
  while (!self->stopped_) {
    auto connection = co_await connect(self);
    if (self->stopped_) break;
    if (connection) {
      self->serve(*connection);
      while (self->connection_) {
        self->wake_.expires_at(std::chrono::steady_clock::time_point::max());
        co_await self->wake_.async_wait(kTuple);
      }
      backoff = kMinBackoff;
      first_failure = true;
      co_await self->pause(backoff);
      continue;
    }
    const auto level = first_failure ? spdlog::level::warn : spdlog::level::debug;
    spdlog::log(level, "{}; retrying until the peer answers", connection.error().to_string());
    first_failure = false;
    co_await self->pause(backoff);
    backoff = std::min(backoff * 2, self->settings_.max_backoff);
  }
  // Drops the handlers, since their captures usually own the owner of this dialer.
  self->handlers_ = {};
}

}  // namespace ckpt::control
