// SPDX-License-Identifier: Apache-2.0
// Connections between agents. They carry only messages of handovers and of moves of ranks, so that committed
// moves are completed while the coordinator is disconnected. Each side of an open migration connects to the
// other side with the token of the migration's plan. Connections in both directions are used equally. With an
// identity, a peer is the node that its certificate names. The peer may act only as the other side of a
// migration that is known here. The port is used again after restarts (file "peer.port"), so that the address
// in the other side's plan stays valid.
// Threads: the event loop. Ownership: owns listener and connections. Errors: listen() returns the reason why
// it cannot listen. An unreachable peer is not an error, because the same facts also pass through the
// coordinator.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "agent/io/async.h"
#include "agent/links/peer_messages.h"
#include "libckpt/base/log_throttle.h"
#include "libckpt/net/control/dialer.h"
#include "libckpt/net/control/listener.h"

namespace ckpt::agent {

class PeerLinks {
 public:
  struct Settings {
    std::string node;
    std::string listen;
    std::string port_file;
    std::shared_ptr<tls::Identity> identity;  // this node's certificate and key; null means no TLS, and no
                                              // TCP
    std::shared_ptr<const tls::DeniedSerials> denied;
  };
  PeerLinks(asio::any_io_executor executor, Settings settings, PeerMessages& messages);
  ~PeerLinks();
  PeerLinks(const PeerLinks&) = delete;
  PeerLinks& operator=(const PeerLinks&) = delete;

  // Begins to accept other agents. Call this function once, before all other functions.
  Result<void> listen();
  [[nodiscard]] const std::string& address() const noexcept { return listener_->address(); }
  // Sets the nodes' token, which the coordinator has sent. From now on, dialers must present this token.
  // Until a token is known, no peer is accepted.
  void on_token(std::string token);
  // Keeps a connection to `node` for this migration, until drop() of the migration. The plan's token is also
  // the nodes' token.
  void add(wire::MigrationId migration, std::string node, std::string address, std::string token);
  void drop(wire::MigrationId migration);
  // Closes the connections whose certificates are now denied.
  void close_denied();
  // Sends a message. Returns false if there is no connection with `node`.
  bool send(const std::string& node, const wire::CommitMessage& message);

 private:
  void accepted(std::shared_ptr<control::Connection> connection, std::string node);
  [[nodiscard]] control::TlsSettings tls_to(control::Admit admit) const;
  // Returns the function that passes a node's messages on.
  [[nodiscard]] std::function<Result<void>(const wire::FrameHeader&, std::span<const std::byte>)> taker(
      const std::string& node) const;

  asio::any_io_executor executor_;
  Settings settings_;
  std::shared_ptr<PeerMessages*>
      messages_;  // null after destruction, because connections may briefly outlive this object
  std::shared_ptr<LogThrottle> dropped_ =
      std::make_shared<LogThrottle>();  // shared with connections, which may
                                        // briefly outlive this object
  std::shared_ptr<control::Listener> listener_;
  std::shared_ptr<std::string>
      token_;  // shared with the listener's handshakes, which may outlive this object
  std::map<std::pair<wire::MigrationId, std::string>, std::shared_ptr<control::Dialer>> wanted_;
  std::multimap<std::string, std::weak_ptr<control::Connection>> incoming_;
};

}  // namespace ckpt::agent
