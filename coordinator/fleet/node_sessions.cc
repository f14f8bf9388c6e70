// SPDX-License-Identifier: Apache-2.0
#include "coordinator/fleet/node_sessions.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "libckpt/base/clock.h"

namespace ckpt::coordinator {
namespace {

using wire::FrameType;

constexpr std::size_t kMaxGpus = 64;
constexpr std::uint32_t kMaxGpuIndex = 1024;  // the API's limit for the index of a GPU
constexpr std::size_t kMaxRanks = 1024;
constexpr std::size_t kMaxOpenHandovers = 4096;
constexpr std::size_t kMaxUnregistered = 64;
constexpr std::size_t kLongestShownName = 64;
constexpr std::chrono::seconds kLastWords{5};

Result<void> check_instance(const std::string& name, const wire::JobInstance& instance) {
  if (instance.job != 0 && instance.incarnation != 0 && instance.ranks.size() <= kMaxRanks) return ok();
  return Error(ErrorCode::kProtocol, "Node " + name + " sent a malformed job instance");
}

Result<void> check_inventory(const std::string& name, const wire::NodeInventory& inventory) {
  if (inventory.node != name)
    return Error(ErrorCode::kProtocol, "Node " + name + " sent the inventory of \"" + inventory.node + "\"");
  if (inventory.gpus.size() > kMaxGpus)
    return Error(ErrorCode::kProtocol, "Node " + name + " reports more GPUs than a node may have: " +
                                           std::to_string(inventory.gpus.size()) + " GPUs");
  for (const wire::GpuInfo& gpu : inventory.gpus) {
    if (gpu.index >= kMaxGpuIndex || gpu.peers.size() > kMaxGpus)
      return Error(ErrorCode::kProtocol, "Node " + name + " sent a malformed GPU");
  }
  for (const wire::JobInstance& instance : inventory.jobs) {
    CKPT_TRYV(check_instance(name, instance));
  }
  return ok();
}

}  // namespace

void NodeSessions::adopt(std::shared_ptr<control::Connection> connection, const wire::Hello& hello) {
  const auto* key = connection.get();
  if (!valid_job_name(hello.name)) {  // node names permit the same characters as job names, so the same check
                                      // applies
    if (const auto left_out = misnamed_.turn(now_ns()))
      spdlog::warn(
          "dropped the connection of {}: \"{}\" is not a valid node name ({} similar messages left out)",
          connection->peer(), hello.name.substr(0, kLongestShownName), *left_out);
    connection->close(Error(ErrorCode::kProtocol, "Malformed node name"));
    return;
  }
  if (unregistered_.size() >= kMaxUnregistered) {
    connection->close(
        Error(ErrorCode::kRefused, "Too many connections have not sent an agent's hello message"));
    return;
  }
  unregistered_.emplace(key, connection);
  control::Connection::Handlers handlers;
  handlers.on_frame = [this, name = hello.name, key](const wire::FrameHeader& header,
                                                     std::span<const std::byte> body) {
    return on_frame(name, key, header, body);
  };
  handlers.on_closed = [this, name = hello.name, key](const Error& reason) { on_closed(name, key, reason); };
  connection->start(std::move(handlers));
}

void NodeSessions::close_all() {
  for (const auto& [name, node] : deps_.table.all()) {
    if (node.connection) node.connection->close(Error(ErrorCode::kAborted, "The coordinator is stopping"));
  }
}

void NodeSessions::close_denied(const tls::DeniedSerials& denied) {
  std::vector<std::shared_ptr<control::Connection>> meant;
  const auto look_at = [&](const std::shared_ptr<control::Connection>& connection) {
    if (connection && denied.contains(connection->certified().serial)) meant.push_back(connection);
  };
  for (const auto& [name, node] : deps_.table.all()) look_at(node.connection);
  for (const auto& [key, connection] : unregistered_) look_at(connection);
  for (const auto& connection : meant)
    connection->close(Error(ErrorCode::kRefused, "The node's certificate is denied"));
}

Result<void> NodeSessions::remove(const std::string& name) {
  CKPT_TRYV(deps_.table.remove_row(name));
  Node* node = deps_.table.find(name);
  if (node == nullptr) return ok();
  if (const auto connection = node->connection) {
    const Error reason(ErrorCode::kAborted, "The node was removed");
    detach(*node, reason);
    connection->close(reason);
  }
  deps_.table.remove(name);
  return ok();
}

Result<void> NodeSessions::on_frame(const std::string& name, const control::Connection* connection,
                                    const wire::FrameHeader& header, std::span<const std::byte> body) {
  const auto waiting = unregistered_.find(connection);
  if (waiting != unregistered_.end()) {
    if (header.type != FrameType::kAgentHello)
      return Error(ErrorCode::kProtocol, "Frame " + std::string(to_string(header.type)) +
                                             " arrived before the agent's hello message");
    CKPT_TRY(hello, wire::decode<wire::AgentHello>(body));
    CKPT_TRYV(check_inventory(name, hello.inventory));
    if (hello.handovers.size() > kMaxOpenHandovers)
      return Error(ErrorCode::kProtocol, "Node " + name +
                                             " takes part in more switches than a node may have: " +
                                             std::to_string(hello.handovers.size()) + " switches");
    std::shared_ptr<control::Connection> registered = waiting->second;
    unregistered_.erase(waiting);
    return on_hello(name, std::move(registered), hello);
  }
  Node* node = deps_.table.find(name);
  if (node == nullptr) return ok();  // the node was refused, or was removed in the meantime
  if (node->connection.get() != connection) return ok();  // a newer connection has replaced this one
  node->row.last_seen_ms = wall_clock_ms();
  return on_node_frame(*node, header, body);
}

Result<void> NodeSessions::on_hello(const std::string& name, std::shared_ptr<control::Connection> connection,
                                    const wire::AgentHello& hello) {
  if (const auto orders = deps_.gate.refusal(name, hello.inventory)) {
    refuse(name, connection, *orders);
    return ok();
  }
  Node& node = deps_.table.obtain(name);
  if (const auto replaced = node.connection) {
    const Error reason(ErrorCode::kAborted, "The node connected again");
    detach(node, reason);
    replaced->close(reason);
  }
  node.connection = std::move(connection);
  return welcome(node, name, hello);
}

void NodeSessions::refuse(const std::string& name, const std::shared_ptr<control::Connection>& connection,
                          const std::vector<wire::StopJob>& orders) {
  const Error reason(ErrorCode::kRefused, "Node " + name +
                                              " was removed from this cluster: `gpumigrate node add " + name +
                                              "` lets it join again");
  spdlog::warn("{}; the node was ordered to end {} instances", reason.message(), orders.size());
  if (refused_.size() >= kMaxUnregistered) return connection->close(reason);
  for (const wire::StopJob& order : orders) {
    if (!connection->send(order)) return;
  }
  // The connection is closed after a delay, because closing it at once would drop the queued orders.
  auto timer = std::make_shared<control::asio::steady_timer>(deps_.executor, kLastWords);
  refused_[connection.get()] = timer;
  timer->async_wait([this, connection, timer, reason](boost::system::error_code) {
    refused_.erase(connection.get());
    connection->close(reason);
  });
}

Result<void> NodeSessions::welcome(Node& node, const std::string& name, const wire::AgentHello& hello) {
  node.row.name = name;
  node.row.version = hello.software_version;
  node.row.peer_address = hello.inventory.peer_address;
  node.row.last_seen_ms = wall_clock_ms();
  if (auto stored = deps_.table.store(node); !stored)
    spdlog::error("node {} was not stored: {}", name, stored.error().to_string());
  CKPT_TRYV(node.connection->send(welcome_));
  CKPT_TRYV(node.update(hello.inventory, node.row.last_seen_ms));
  node.handovers = hello.handovers;
  node.newest_migration = hello.newest_migration;
  node.newest_job = hello.newest_job;
  node.describes = hello.describes;
  deps_.listener.on_ready(node);
  deps_.listener.on_inventory(node);
  return ok();
}

Result<void> NodeSessions::on_node_frame(Node& node, const wire::FrameHeader& header,
                                         std::span<const std::byte> body) {
  switch (header.type) {
    case FrameType::kInventory: {
      CKPT_TRY(message, wire::decode<wire::Inventory>(body));
      return on_inventory(node, message.inventory);
    }
    case FrameType::kJobChange: {
      CKPT_TRY(message, wire::decode<wire::JobChange>(body));
      CKPT_TRYV(check_instance(node.row.name, message.instance));
      CKPT_TRYV(node.update(message.instance));
      deps_.listener.on_instance(node, message.instance);
      return ok();
    }
    default:
      return deps_.frames.handle(node, header.type, body);
  }
}

Result<void> NodeSessions::on_inventory(Node& node, const wire::NodeInventory& inventory) {
  CKPT_TRYV(check_inventory(node.row.name, inventory));
  node.row.peer_address = inventory.peer_address;
  CKPT_TRYV(node.update(inventory, node.row.last_seen_ms));
  deps_.listener.on_inventory(node);
  return ok();
}

void NodeSessions::on_closed(const std::string& name, const control::Connection* connection,
                             const Error& reason) {
  if (unregistered_.erase(connection) != 0) return;
  Node* node = deps_.table.find(name);
  if (node != nullptr && node->connection.get() == connection) detach(*node, reason);
}

void NodeSessions::detach(Node& node, const Error& reason) {
  const std::string& name = node.row.name;
  node.connection.reset();
  spdlog::warn("lost the connection to the agent of {}: {}", name, reason.to_string());
  deps_.calls.on_disconnected(name, reason);
  deps_.listener.on_lost(node);
}

}  // namespace ckpt::coordinator
