// SPDX-License-Identifier: Apache-2.0
// Agent to agent: messages of switches and of moves of ranks only, so that what is committed is finished
// while the coordinator is away. Each side of an open migration dials the other with the token of that
// migration's plan; connections in both directions are used alike. With an identity a peer is the node that
// its certificate names. It may then speak as the other side of a migration that is known here, and as nobody
// else. The port is kept across restarts (file "peer.port"), so that the address in the other side's plan
// stays true.
// Threads: the event loop. Ownership: owns listener and connections. Errors: create() returns why it cannot
// listen; a peer that is not reached is no error (the same facts travel through the coordinator).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "agent/io/async.h"
#include "libckpt/base/rarely.h"
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
    std::shared_ptr<tls::Identity> identity;  // none: no TLS, and no TCP
    std::shared_ptr<const tls::DeniedSerials> denied;
    // Returns the other node of a migration and its party; none: this node knows no such migration. Called
    // only if there is an identity.
    std::function<std::optional<OtherSide>(wire::MigrationId)> other_side;
    // Takes a message of a move of ranks from that node. False: the node may not speak as that rank. None:
    // all are dropped.
    std::function<bool(const std::string& node, const wire::CommitMessage&)> take_of_ranks;
  };
  using Receive = std::function<void(wire::CommitMessage)>;
  static Result<std::unique_ptr<PeerLinks>> create(asio::any_io_executor executor, Settings settings,
                                                   Receive receive);
  ~PeerLinks();
  PeerLinks(const PeerLinks&) = delete;
  PeerLinks& operator=(const PeerLinks&) = delete;

  [[nodiscard]] const std::string& address() const noexcept { return listener_->address(); }
  // The coordinator has sent the nodes' token: dialers must show it from now on. Until a token is known no
  // peer is accepted.
  void on_token(std::string token);
  // Keeps a connection to that node for this migration, until drop() of the migration. The plan's token is
  // the nodes' as well.
  void keep(wire::MigrationId migration, std::string node, std::string address, std::string token);
  void drop(wire::MigrationId migration);
  // Ends the connections that showed certificates which are denied by now.
  void close_denied();
  // Sends a message. False if there is no connection with that node.
  bool send(const std::string& node, const wire::CommitMessage& message);

 private:
  PeerLinks(asio::any_io_executor executor, Settings settings, Receive receive);
  Result<void> listen();
  void accepted(std::shared_ptr<control::Connection> connection, std::string node);
  [[nodiscard]] control::TlsSettings tls_to(control::Admit admit) const;
  // Returns the function that passes a node's messages on to receive_, if they may be believed.
  [[nodiscard]] std::function<Result<void>(const wire::FrameHeader&, std::span<const std::byte>)> taker(
      const std::string& node) const;

  asio::any_io_executor executor_;
  Settings settings_;
  std::shared_ptr<Receive>
      receive_;  // empty after destruction: connections may outlive this object for a moment
  std::shared_ptr<Rarely> dropped_ = std::make_shared<Rarely>();  // likewise
  std::shared_ptr<control::Listener> listener_;
  std::shared_ptr<std::string>
      token_;  // shared with the listener's handshakes, which may outlive this object
  std::map<std::pair<wire::MigrationId, std::string>, std::shared_ptr<control::Dialer>> wanted_;
  std::multimap<std::string, std::weak_ptr<control::Connection>> incoming_;
};

}  // namespace ckpt::agent
