// SPDX-License-Identifier: Apache-2.0
// Keeps one control connection to an address up. It connects, greets, and after a loss tries again. The
// backoff doubles from 50 ms to `max_backoff`. Half of it is random, so that peers do not all come back at
// once. Over TCP a peer must show its certificate before it gets the token. What was queued
// on a lost connection is gone: a caller that needs an answer asks again from on_connected. Threads: as
// Connection. Ownership: shared; stop() ends it. Errors: failed attempts are logged, the first of a row as
// a warning, the rest at debug level.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "libckpt/base/result.h"
#include "libckpt/net/control/connection.h"

namespace ckpt::control {

// From half of `backoff` up to all of it, by `chance` (0 up to 255).
[[nodiscard]] std::chrono::milliseconds with_jitter(std::chrono::milliseconds backoff,
                                                    std::uint8_t chance) noexcept;

class Dialer : public std::enable_shared_from_this<Dialer> {
 public:
  struct Settings {
    std::string name;   // sent in Hello
    std::string label;  // of the peer, for logs
    // Asked before every attempt: both may change while the peer restarts.
    std::function<Result<std::string>()> address;
    std::function<Result<std::string>()> token;
    TlsSettings tls;  // required for TCP
    ConnectionSettings connection;
    std::chrono::milliseconds max_backoff{2000};
  };
  struct Handlers {
    std::function<void(Connection&)> on_connected;
    std::function<Result<void>(const wire::FrameHeader&, std::span<const std::byte> body)> on_frame;
    std::function<void(const Error&)> on_lost;  // once for every on_connected
  };

  static std::shared_ptr<Dialer> create(asio::any_io_executor executor, Settings settings, Handlers handlers);

  void start();
  void stop();
  [[nodiscard]] bool connected() const noexcept { return connection_ != nullptr && connection_->is_open(); }

  // None while not connected.
  [[nodiscard]] const std::shared_ptr<Connection>& connection() const noexcept { return connection_; }

  // kUnavailable while not connected.
  template <class M>
  Result<void> send(const M& message) {
    if (!connected()) return Error(ErrorCode::kUnavailable, "Not connected to " + settings_.label);
    return connection_->send(message);
  }

 private:
  Dialer(asio::any_io_executor executor, Settings settings, Handlers handlers);
  static Task<> run(std::shared_ptr<Dialer> self);
  static Task<Result<std::shared_ptr<Connection>>> connect(std::shared_ptr<Dialer> self);
  void serve(std::shared_ptr<Connection> connection);
  Task<> pause(std::chrono::milliseconds backoff);

  asio::any_io_executor executor_;
  Settings settings_;
  Handlers handlers_;
  std::shared_ptr<Connection> connection_;
  asio::steady_timer wake_;
  bool stopped_ = false;
};

}  // namespace ckpt::control
