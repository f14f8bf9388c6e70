// SPDX-License-Identifier: Apache-2.0
// Accepts control connections, does their handshake and hands over those that knew the token. At most
// kMaxHandshakes of them are open at a time: for another one the oldest goes, so that slow strangers keep
// nobody out. TCP is TLS; a Unix socket is for this user and root.
// Threads: as Connection. Ownership: the listener owns the port, not the connections. Errors: create() fails
// if the port cannot be bound; failures of single connections are logged.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <variant>

#include "libckpt/base/rarely.h"
#include "libckpt/base/result.h"
#include "libckpt/net/control/acceptor.h"
#include "libckpt/net/control/connection.h"
#include "libckpt/protocol/wire/control_messages.h"

namespace ckpt::control {

class Listener : public std::enable_shared_from_this<Listener> {
 public:
  // The connection has not been started: the receiver calls start().
  using Accept = std::function<void(std::shared_ptr<Connection>, wire::Hello)>;
  // The token that dialers must show: always the same, or asked for at each handshake.
  using Token = std::variant<std::string, std::function<std::string()>>;
  struct Settings {
    std::string address;
    Token token;
    TlsSettings tls;  // required for TCP
    Connection::CheckName check_name;
    ConnectionSettings connection;
  };

  static constexpr std::size_t kMaxHandshakes = 64;
  static Result<std::shared_ptr<Listener>> create(asio::any_io_executor executor, Settings settings,
                                                  Accept accept);

  // Where it listens, with the port the system chose.
  [[nodiscard]] const std::string& address() const noexcept { return address_; }
  void close();

 private:
  Listener(Acceptor acceptor, std::string address, Settings settings, Accept accept);
  [[nodiscard]] std::string token() const;
  static Task<> accept_loop(std::shared_ptr<Listener> self);
  void take(Stream::Socket socket);
  void say_refused(Rarely& turns, const std::string& peer, const std::string& why);
  static Task<> handshake(std::shared_ptr<Listener> self, std::shared_ptr<Connection> connection);

  Acceptor acceptor_;
  std::string address_;
  Settings settings_;
  Accept accept_;
  std::list<std::shared_ptr<Connection>> unfinished_;  // the oldest first
  // Strangers may be refused as often as they like, and hide nothing that a certificate's owner tries.
  Rarely strangers_refused_;
  Rarely owners_refused_;
};

}  // namespace ckpt::control
