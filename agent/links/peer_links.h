// SPDX-License-Identifier: Apache-2.0
// Connections between agents. They carry only messages of switches and of moves of ranks, so that committed
// moves are completed while the coordinator is disconnected. Each side of an open migration connects to the
// other side with the token of the migration's plan. Connections in both directions are used equally. With an
// identity, a peer is the node that its certificate names. The peer may act only as the other side of a
// migration that is known here. The port is used again after restarts (file "peer.port"), so that the address
// in the other side's plan stays valid.
// Threads: the event loop. Ownership: owns listener and connections. Errors: create() returns the reason why
// it cannot listen. An unreachable peer is no error, because the same facts also pass through the
// coordinator.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "agent/io/async.h"
#include "libckpt/base/log_throttle.h"
#include "libckpt/net/control/dialer.h"
#include "libckpt/net/control/listener.h"
#include "libckpt/protocol/gang/gang_records.h"
#include "libckpt/protocol/wire/commit_messages.h"

namespace ckpt::agent {

class PeerLinks {
 public:
  struct OtherSide {
    std::string node;
    wire::Role party = wire::Role::kCoordinator;
  };
  struct Settings {
    std::string node;
    std::string listen;
    std::string port_file;
    std::shared_ptr<tls::Identity> identity;  // null means no TLS, and no TCP
    std::shared_ptr<const tls::DeniedSerials> denied;
    // Returns the other node of a migration and its party. Returns nothing if this node knows no such
    // migration. The function is called only if there is an identity.
    std::function<std::optional<OtherSide>(wire::MigrationId)> other_side;
    // Handles a message of a move of ranks from `node`. Returns false if the node may not act as that rank.
    // Without this function, all such messages are dropped.
    std::function<bool(const std::string& node, const wire::CommitMessage&)> take_of_ranks;
  };
  using Receive = std::function<void(wire::CommitMessage)>;
  static Result<std::unique_ptr<PeerLinks>> create(asio::any_io_executor executor, Settings settings,
                                                   Receive receive);
  ~PeerLinks();
  PeerLinks(const PeerLinks&) = delete;
  PeerLinks& operator=(const PeerLinks&) = delete;

  [[nodiscard]] const std::string& address() const noexcept { return listener_->address(); }
  // Sets the nodes' token, which the coordinator has sent. From now on, dialers must present this token.
  // Until a token is known, no peer is accepted.
  void on_token(std::string token);
  // Keeps a connection to `node` for this migration, until drop() of the migration. The plan's token is also
  // the nodes' token.
  void keep(wire::MigrationId migration, std::string node, std::string address, std::string token);
  void drop(wire::MigrationId migration);
  // Closes the connections whose certificates are now denied.
  void close_denied();
  // Sends a message. Returns false if there is no connection with `node`.
  bool send(const std::string& node, const wire::CommitMessage& message);

 private:
  PeerLinks(asio::any_io_executor executor, Settings settings, Receive receive);
  Result<void> listen();
  void accepted(std::shared_ptr<control::Connection> connection, std::string node);
  [[nodiscard]] control::TlsSettings tls_to(control::Admit admit) const;
  // Returns the function that forwards a node's messages to receive_ if the node is authorized to send them.
  [[nodiscard]] std::function<Result<void>(const wire::FrameHeader&, std::span<const std::byte>)> taker(
      const std::string& node) const;

  asio::any_io_executor executor_;
  Settings settings_;
  std::shared_ptr<Receive>
      receive_;  // empty after destruction, because connections may briefly outlive this object
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
