// SPDX-License-Identifier: Apache-2.0
// The connections of agents. Accepts and registers them, updates the node table from their reports, and
// passes their other frames to NodeFrames.
//
// Threads: one io_context on one thread. Ownership: a node's connection belongs to its entry in the table. A
// newer connection of the same node replaces the older one (the agent was restarted). Errors: a malformed
// frame closes the connection.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/fleet/node_calls.h"
#include "libckpt/base/log_throttle.h"

namespace ckpt::coordinator {

// The check that each connecting node must pass.
class NodeGate {
 public:
  virtual ~NodeGate() = default;
  // Returns nullopt to admit the node. Otherwise the node receives the returned orders, and its connection is
  // closed.
  virtual std::optional<std::vector<wire::StopJob>> refusal(const std::string& node,
                                                            const wire::NodeInventory& has) = 0;
};

// A receiver of node events. Its functions are called on the io thread, after the node table was changed.
class NodeListener {
 public:
  virtual ~NodeListener() = default;
  virtual void on_ready(const Node& node) = 0;      // the node is registered and its inventory is known;
                                                    // on_inventory() follows
  virtual void on_lost(const Node& node) = 0;       // the node's connection was lost or closed
  virtual void on_inventory(const Node& node) = 0;  // the node's whole list of instances was replaced
  // one instance of the node has changed
  virtual void on_instance(const Node& node, const wire::JobInstance& instance) = 0;
};

class NodeSessions {
 public:
  struct Dependencies {
    NodeTable& table;
    NodeCalls& calls;
    const NodeFrames& frames;
    NodeGate& gate;
    NodeListener& listener;
    control::asio::any_io_executor executor;
  };
  NodeSessions(Dependencies deps, wire::Welcome welcome)
      : deps_(std::move(deps)), welcome_(std::move(welcome)) {}
  NodeSessions(const NodeSessions&) = delete;
  NodeSessions& operator=(const NodeSessions&) = delete;

  // Takes over a connection that has presented the token. Its first frame must be AgentHello.
  void adopt(std::shared_ptr<control::Connection> connection, const wire::Hello& hello);
  void close_all();
  // Closes the connections whose certificates are now denied.
  void close_denied(const tls::DeniedSerials& denied);
  // Removes a node that has left the cluster. Its connection is closed, and no data about it is kept.
  Result<void> remove(const std::string& name);

 private:
  Result<void> on_frame(const std::string& name, const control::Connection* connection,
                        const wire::FrameHeader& header, std::span<const std::byte> body);
  Result<void> on_hello(const std::string& name, std::shared_ptr<control::Connection> connection,
                        const wire::AgentHello& hello);
  Result<void> on_node_frame(Node& node, const wire::FrameHeader& header, std::span<const std::byte> body);
  Result<void> welcome(Node& node, const std::string& name, const wire::AgentHello& hello);
  void refuse(const std::string& name, const std::shared_ptr<control::Connection>& connection,
              const std::vector<wire::StopJob>& orders);
  Result<void> on_inventory(Node& node, const wire::NodeInventory& inventory);
  void on_closed(const std::string& name, const control::Connection* connection, const Error& reason);
  void detach(Node& node, const Error& reason);

  Dependencies deps_;
  wire::Welcome welcome_;
  std::map<const control::Connection*, std::shared_ptr<control::Connection>> unregistered_;
  // The timers of refused nodes' connections, which stay open so that the nodes' last orders can be sent.
  std::map<const control::Connection*, std::shared_ptr<control::asio::steady_timer>> refused_;
  LogThrottle misnamed_;
};

}  // namespace ckpt::coordinator
