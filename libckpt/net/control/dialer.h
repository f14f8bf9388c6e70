// SPDX-License-Identifier: Apache-2.0
// Maintains one control connection to an address. It connects, performs the handshake, and reconnects after a
// loss. The backoff doubles from 50 ms to `max_backoff`. Half of the backoff is random, so that peers do not
// all reconnect at the same time. Over TCP a peer must show its certificate before it gets the token. Frames
// that were queued on a lost connection are lost: a caller that needs an answer must send its request again
// from on_connected.
// Threads: as Connection. Ownership: shared; stop() ends it. Errors: failed attempts are logged. The first of
// several consecutive failures is a warning; the rest are at debug level.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "libckpt/base/result.h"
#include "libckpt/net/control/connection.h"

namespace ckpt::control {

// Returns a time between half of `backoff` and all of it, scaled by `chance` (0 to 255).
[[nodiscard]] std::chrono::milliseconds with_jitter(std::chrono::milliseconds backoff,
                                                    std::uint8_t chance) noexcept;

class Dialer : public std::enable_shared_from_this<Dialer> {
 public:
  struct Settings {
    std::string name;   // this process's name, which is sent in Hello
    std::string label;  // the peer's name for logs
    // Functions that are called before every attempt, since address and token may change while the peer
    // restarts.
    std::function<Result<std::string>()> address;
    std::function<Result<std::string>()> token;
    TlsSettings tls;  // the TLS settings, which an address over TCP requires
    ConnectionSettings connection;
    std::chrono::milliseconds max_backoff{2000};
  };
  struct Handlers {
    std::function<void(Connection&)> on_connected;
    std::function<Result<void>(const wire::FrameHeader&, std::span<const std::byte> body)> on_frame;
    std::function<void(const Error&)> on_lost;  // a function that is called once for every on_connected, when
                                                // that connection is lost
  };

  static std::shared_ptr<Dialer> create(asio::any_io_executor executor, Settings settings, Handlers handlers);

  void start();
  void stop();
  [[nodiscard]] bool connected() const noexcept { return connection_ != nullptr && connection_->is_open(); }

  // Returns the connection, or null while not connected.
  [[nodiscard]] const std::shared_ptr<Connection>& connection() const noexcept { return connection_; }

  // Sends a message. Returns kUnavailable while not connected.
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
