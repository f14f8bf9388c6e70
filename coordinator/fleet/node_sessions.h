// SPDX-License-Identifier: Apache-2.0
// The connections of agents: accepts and registers them, keeps the node table up to date with their reports,
// and hands their other frames to NodeFrames.
//
// Threads: one io_context on one thread. Ownership: a node's connection belongs to its entry in the table; a
// newer connection of the same node replaces the older (the agent was restarted). Errors: a malformed frame
// ends the connection.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/fleet/node_calls.h"
#include "libckpt/base/rarely.h"

namespace ckpt::coordinator {

// Asked about each node that connects.
class NodeGate {
 public:
  virtual ~NodeGate() = default;
  // Nothing: the node is let in. Else it gets these orders, and its connection ends.
  virtual std::optional<std::vector<wire::StopJob>> refusal(const std::string& node,
                                                            const wire::NodeInventory& has) = 0;
};

// Called on the io thread, after the node table was changed.
class NodeListener {
 public:
  virtual ~NodeListener() = default;
  virtual void on_ready(const Node& node) = 0;      // registered, inventory known; on_inventory() follows
  virtual void on_lost(const Node& node) = 0;       // its connection ended
  virtual void on_inventory(const Node& node) = 0;  // the whole list of instances was replaced
  virtual void on_instance(const Node& node, const wire::JobInstance& instance) = 0;  // one has changed
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

  // A connection that knew the token; its first frame must be AgentHello.
  void adopt(std::shared_ptr<control::Connection> connection, const wire::Hello& hello);
  void close_all();
  // Ends the connections whose certificates are denied by now.
  void close_denied(const tls::DeniedSerials& denied);
  // The node left the cluster: its connection ends, and nothing of it is kept.
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
  // Timers of refused nodes' connections, which stay open until the nodes' last orders have left.
  std::map<const control::Connection*, std::shared_ptr<control::asio::steady_timer>> refused_;
  Rarely misnamed_;
};

}  // namespace ckpt::coordinator
