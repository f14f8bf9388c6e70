// SPDX-License-Identifier: Apache-2.0
// Accepts control connections, performs their handshake, and passes on the connections that showed the token.
// At most kMaxHandshakes handshakes are open at a time. A new connection beyond that limit replaces the
// oldest handshake, so that slow unknown peers cannot block other peers. TCP uses TLS; a Unix socket is for
// this user and root.
// Threads: as Connection. Ownership: the listener owns the port, not the connections. Errors: create() fails
// if the port cannot be bound; failures of single connections are logged.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <variant>

#include "libckpt/base/log_throttle.h"
#include "libckpt/base/result.h"
#include "libckpt/net/control/acceptor.h"
#include "libckpt/net/control/connection.h"
#include "libckpt/protocol/wire/control_messages.h"

namespace ckpt::control {

class Listener : public std::enable_shared_from_this<Listener> {
 public:
  // Receives a connection that has not been started. The receiver calls start().
  using Accept = std::function<void(std::shared_ptr<Connection>, wire::Hello)>;
  // The token that dialers must show: a fixed string, or a function that is called at each handshake.
  using Token = std::variant<std::string, std::function<std::string()>>;
  struct Settings {
    std::string address;
    Token token;
    TlsSettings tls;  // the TLS settings, which an address over TCP requires
    Connection::CheckName check_name;
    ConnectionSettings connection;
  };

  static constexpr std::size_t kMaxHandshakes = 64;
  static Result<std::shared_ptr<Listener>> create(asio::any_io_executor executor, Settings settings,
                                                  Accept accept);

  // Returns the address of the listening socket, with the port that the system chose.
  [[nodiscard]] const std::string& address() const noexcept { return address_; }
  void close();

 private:
  Listener(Acceptor acceptor, std::string address, Settings settings, Accept accept);
  [[nodiscard]] std::string token() const;
  static Task<> accept_loop(std::shared_ptr<Listener> self);
  void accept_socket(Stream::Socket socket);
  void log_refused(LogThrottle& turns, const std::string& peer, const std::string& reason);
  static Task<> handshake(std::shared_ptr<Listener> self, std::shared_ptr<Connection> connection);

  Acceptor acceptor_;
  std::string address_;
  Settings settings_;
  Accept accept_;
  std::list<std::shared_ptr<Connection>> unfinished_;  // unfinished handshakes, the oldest first
  // Separate rate limits for the log. Unknown peers may be refused any number of times; that must not hide
  // attempts by the owner of a certificate.
  LogThrottle unknown_refused_;
  LogThrottle owners_refused_;
};

}  // namespace ckpt::control
