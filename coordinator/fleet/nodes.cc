// SPDX-License-Identifier: Apache-2.0
#include "coordinator/fleet/nodes.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "libckpt/base/clock.h"

namespace ckpt::coordinator {
namespace {

using wire::FrameType;

constexpr std::size_t kMaxGpus = 64;
constexpr std::uint32_t kMaxGpuIndex = 1024;  // what the API takes
constexpr std::size_t kMaxRanks = 1024;
constexpr std::size_t kMaxOpenSwitches = 4096;
constexpr std::size_t kMaxUnregistered = 64;
constexpr std::chrono::seconds kLastWords{5};
constexpr std::chrono::milliseconds kLogGrace{10000};
constexpr std::chrono::milliseconds kInspection{30000};

Result<void> check_inventory(const std::string& name, const wire::NodeInventory& inventory) {
  if (inventory.node != name)
    return Error(ErrorCode::kProtocol, "Node " + name + " sent the inventory of \"" + inventory.node + "\"");
  if (inventory.gpus.size() > kMaxGpus)
    return Error(ErrorCode::kProtocol,
                 "Node " + name + " says it has " + std::to_string(inventory.gpus.size()) + " GPUs");
  for (const wire::GpuInfo& gpu : inventory.gpus) {
    if (gpu.index >= kMaxGpuIndex || gpu.peers.size() > kMaxGpus)
      return Error(ErrorCode::kProtocol, "Node " + name + " sent a malformed GPU");
  }
  for (const wire::JobInstance& instance : inventory.jobs) {
    if (instance.job == 0 || instance.incarnation == 0 || instance.ranks.size() > kMaxRanks)
      return Error(ErrorCode::kProtocol, "Node " + name + " sent a malformed job instance");
  }
  return ok();
}

}  // namespace

void Node::keep(const wire::NodeInventory& inventory, std::int64_t now_ms) {
  gpus = inventory.gpus;
  instances = inventory.jobs;
  moves_processes = inventory.moves_processes;
  process_reason = inventory.process_reason;
  driver_version = inventory.driver_version;
  rack = inventory.rack;
  labels = inventory.labels;
  for (const wire::GpuInfo& gpu : gpus)
    gpu_memory[gpu.index].add(now_ms, gpu.total_bytes - std::min(gpu.total_bytes, gpu.free_bytes));
  shown.clear();
  for (const wire::JobInstance& instance : instances) {
    for (const wire::RankState& rank : instance.ranks) {
      ShownMemory& entry = shown.emplace_back();
      entry.job = instance.job;
      entry.incarnation = instance.incarnation;
      entry.gpu = rank.gpu_index;
      entry.bytes = rank.device_bytes;
    }
  }
}

std::uint64_t Node::shown_bytes(JobId job, Incarnation incarnation) const {
  std::uint64_t sum = 0;
  for (const ShownMemory& entry : shown)
    sum += entry.job == job && entry.incarnation == incarnation ? entry.bytes : 0;
  return sum;
}

std::uint64_t Node::shown_bytes(std::uint32_t gpu) const {
  std::uint64_t sum = 0;
  for (const ShownMemory& entry : shown) sum += entry.gpu == gpu ? entry.bytes : 0;
  return sum;
}

const wire::JobInstance* Node::find(JobId job, Incarnation incarnation) const {
  const auto at = std::find_if(instances.begin(), instances.end(), [&](const wire::JobInstance& instance) {
    return instance.job == job && instance.incarnation == incarnation;
  });
  return at == instances.end() ? nullptr : &*at;
}

NodeTable::NodeTable(Store& store, StoreSync& sync, control::asio::any_io_executor executor,
                     wire::Welcome welcome, NodeGate& gate, Listener listener)
    : store_(store),
      sync_(sync),
      executor_(std::move(executor)),
      welcome_(std::move(welcome)),
      gate_(gate),
      listener_(std::move(listener)) {}

Result<void> NodeTable::load() {
  CKPT_TRY(rows, store_.nodes());
  for (NodeRow& row : rows) {
    const std::string name = row.name;
    nodes_[name].row = std::move(row);
  }
  return ok();
}

const Node* NodeTable::find(const std::string& name) const {
  const auto at = nodes_.find(name);
  return at == nodes_.end() ? nullptr : &at->second;
}

bool NodeTable::connected(const std::string& name) const {
  const Node* node = find(name);
  return node != nullptr && node->connected();
}

void NodeTable::adopt(std::shared_ptr<control::Connection> connection, const wire::Hello& hello) {
  const auto* key = connection.get();
  if (!valid_job_name(hello.name)) {  // the same alphabet
    spdlog::warn("dropped {}: \"{}\" is no name for a node", connection->peer(), hello.name);
    connection->close(Error(ErrorCode::kProtocol, "Malformed node name"));
    return;
  }
  if (unregistered_.size() >= kMaxUnregistered) {
    connection->close(Error(ErrorCode::kRefused, "Too many connections without an agent's hello"));
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

void NodeTable::close_all() {
  for (auto& [name, node] : nodes_) {
    if (node.connection) node.connection->close(Error(ErrorCode::kAborted, "The coordinator stops"));
  }
}

Result<void> NodeTable::on_frame(const std::string& name, const control::Connection* connection,
                                 const wire::FrameHeader& header, std::span<const std::byte> body) {
  const auto waiting = unregistered_.find(connection);
  if (waiting != unregistered_.end()) {
    if (header.type != FrameType::kAgentHello)
      return Error(ErrorCode::kProtocol,
                   "Frame " + std::string(to_string(header.type)) + " before the agent's hello");
    CKPT_TRY(hello, wire::decode<wire::AgentHello>(body));
    CKPT_TRYV(check_inventory(name, hello.inventory));
    if (hello.switches.size() > kMaxOpenSwitches)
      return Error(ErrorCode::kProtocol, "Node " + name + " says it takes part in " +
                                             std::to_string(hello.switches.size()) + " switches");
    std::shared_ptr<control::Connection> registered = waiting->second;
    unregistered_.erase(waiting);
    if (const auto orders = gate_.refusal(name, hello.inventory)) {
      refuse(name, registered, *orders);
      return ok();
    }
    Node& node = nodes_[name];
    if (const auto replaced = node.connection) {
      const Error reason(ErrorCode::kAborted, "The node connected anew");
      detach(node, reason);
      replaced->close(reason);
    }
    node.connection = registered;
    return welcome(name, hello);
  }
  const auto at = nodes_.find(name);
  if (at == nodes_.end()) return ok();  // refused, or removed meanwhile
  Node& node = at->second;
  if (node.connection.get() != connection) return ok();  // replaced meanwhile
  node.row.last_seen_ms = wall_clock_ms();
  return on_node_frame(node, header, body);
}

void NodeTable::refuse(const std::string& name, const std::shared_ptr<control::Connection>& connection,
                       const std::vector<wire::StopJob>& orders) {
  const Error reason(
      ErrorCode::kRefused,
      "Node " + name + " was removed from this cluster: `gpumigrate node add " + name + "` lets it in again");
  spdlog::warn("{}; it is told to end {} instances", reason.message(), orders.size());
  if (refused_.size() >= kMaxUnregistered) return connection->close(reason);
  for (const wire::StopJob& order : orders) {
    if (!connection->send(order)) return;
  }
  // What is queued goes with the connection when that is closed.
  auto timer = std::make_shared<control::asio::steady_timer>(executor_, kLastWords);
  refused_[connection.get()] = timer;
  timer->async_wait([this, connection, timer, reason](boost::system::error_code) {
    refused_.erase(connection.get());
    connection->close(reason);
  });
}

Result<void> NodeTable::remove(const std::string& name) {
  CKPT_TRYV(store_.remove_node(name));
  const auto at = nodes_.find(name);
  if (at == nodes_.end()) return ok();
  if (const auto connection = at->second.connection) {
    const Error reason(ErrorCode::kAborted, "The node was removed");
    detach(at->second, reason);
    connection->close(reason);
  }
  nodes_.erase(name);
  return ok();
}

Result<void> NodeTable::welcome(const std::string& name, const wire::AgentHello& hello) {
  Node& node = nodes_[name];
  node.row.name = name;
  node.row.version = hello.software_version;
  node.row.peer_address = hello.inventory.peer_address;
  node.row.last_seen_ms = wall_clock_ms();
  if (auto stored = store_.put(node.row); !stored)
    spdlog::error("node {} was not stored: {}", name, stored.assume_error().to_string());
  CKPT_TRYV(node.connection->send(welcome_));
  node.keep(hello.inventory, node.row.last_seen_ms);
  node.switches = hello.switches;
  node.newest_migration = hello.newest_migration;
  node.newest_job = hello.newest_job;
  node.describes = hello.describes;
  listener_.on_ready(node);
  listener_.on_inventory(node);
  return ok();
}

Result<void> NodeTable::on_node_frame(Node& node, const wire::FrameHeader& header,
                                      std::span<const std::byte> body) {
  switch (header.type) {
    case FrameType::kInventory: {
      CKPT_TRY(message, wire::decode<wire::Inventory>(body));
      return take_inventory(node, message.inventory);
    }
    case FrameType::kJobChange: {
      CKPT_TRY(message, wire::decode<wire::JobChange>(body));
      take_change(node, message.instance);
      return ok();
    }
    case FrameType::kReply:
      return take_answer<wire::Reply>(node, body);
    case FrameType::kLogData:
      return take_answer<wire::LogData>(node, body);
    case FrameType::kProcessFacts:
      return take_answer<wire::ProcessFacts>(node, body);
    case FrameType::kVaultGrant:
      return take_answer<wire::VaultGrant>(node, body);
    case FrameType::kImageFacts:
      return take_answer<wire::ImageFacts>(node, body);
    case FrameType::kJobFacts:
      return take_answer<wire::JobFacts>(node, body);
    case FrameType::kSwitchFacts:
      return take_answer<wire::SwitchFacts>(node, body);
    default:
      return on_migration_frame(node, header, body);
  }
}

Result<void> NodeTable::on_migration_frame(Node& node, const wire::FrameHeader& header,
                                           std::span<const std::byte> body) {
  switch (header.type) {
    case FrameType::kSwitch: {
      CKPT_TRY(message, wire::decode_switch(body));
      listener_.on_switch(node, message);
      return ok();
    }
    case FrameType::kMigrationProgress: {
      CKPT_TRY(message, wire::decode<wire::MigrationProgress>(body));
      listener_.on_progress(node, message);
      return ok();
    }
    case FrameType::kSourceReport: {
      CKPT_TRY(message, wire::decode<wire::SourceReport>(body));
      listener_.on_source_report(node, message);
      return ok();
    }
    case FrameType::kTargetReport: {
      CKPT_TRY(message, wire::decode<wire::TargetReport>(body));
      listener_.on_target_report(node, message);
      return ok();
    }
    default: {
      const auto handler = handlers_.find(header.type);
      if (handler != handlers_.end()) return handler->second(node, body);
      return Error(ErrorCode::kProtocol,
                   "Frame " + std::string(to_string(header.type)) + " is not for a coordinator");
    }
  }
}

Result<void> NodeTable::take_inventory(Node& node, const wire::NodeInventory& inventory) {
  CKPT_TRYV(check_inventory(node.row.name, inventory));
  node.row.peer_address = inventory.peer_address;
  node.keep(inventory, node.row.last_seen_ms);
  listener_.on_inventory(node);
  return ok();
}

void NodeTable::take_change(Node& node, const wire::JobInstance& instance) {
  const auto at =
      std::find_if(node.instances.begin(), node.instances.end(), [&](const wire::JobInstance& known) {
        return known.job == instance.job && known.incarnation == instance.incarnation;
      });
  if (at == node.instances.end())
    node.instances.push_back(instance);
  else
    *at = instance;
  listener_.on_change(node, instance);
}

void NodeTable::on_closed(const std::string& name, const control::Connection* connection,
                          const Error& reason) {
  if (unregistered_.erase(connection) != 0) return;
  const auto at = nodes_.find(name);
  if (at == nodes_.end() || at->second.connection.get() != connection) return;
  detach(at->second, reason);
}

void NodeTable::detach(Node& node, const Error& reason) {
  const std::string& name = node.row.name;
  node.connection.reset();
  spdlog::warn("lost the agent of {}: {}", name, reason.to_string());
  for (auto& [id, pending] : *pending_) {
    if (pending->node != name || pending->answer) continue;
    pending->answer = Error(ErrorCode::kUnavailable, "Node " + name + " went away: " + reason.to_string());
    pending->wake.cancel();
  }
  listener_.on_lost(node);
}

void NodeTable::finish(std::uint64_t request, const std::string& node, Answer answer) {
  const auto at = pending_->find(request);
  if (at == pending_->end() || at->second->node != node || at->second->answer)
    return;  // late, or not its business
  at->second->answer = std::move(answer);
  at->second->wake.cancel();
}

control::Task<Result<wire::ProcessFacts>> NodeTable::inspect(std::string node, wire::InspectProcess request) {
  co_return co_await ask<wire::ProcessFacts>(std::move(node), std::move(request), kInspection);
}

control::Task<Result<wire::JobFacts>> NodeTable::describe(std::string node, wire::DescribeJob request) {
  co_return co_await ask<wire::JobFacts>(std::move(node), std::move(request), kInspection);
}

control::Task<Result<wire::SwitchFacts>> NodeTable::describe(std::string node, wire::DescribeSwitch request) {
  co_return co_await ask<wire::SwitchFacts>(std::move(node), std::move(request), kInspection);
}

control::Task<Result<wire::VaultGrant>> NodeTable::grant_vault(std::string node, wire::GrantVault request,
                                                               std::chrono::milliseconds timeout) {
  co_return co_await ask<wire::VaultGrant>(std::move(node), std::move(request), timeout);
}

control::Task<Result<wire::ImageFacts>> NodeTable::read_image(std::string node, wire::ReadImage request,
                                                              std::chrono::milliseconds timeout) {
  co_return co_await ask<wire::ImageFacts>(std::move(node), std::move(request), timeout);
}

control::Task<Result<wire::LogData>> NodeTable::read_log(std::string node, wire::ReadLog request) {
  request.request_id = next_request_++;
  const auto timeout =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::nanoseconds(request.follow_ns)) +
      kLogGrace;
  auto answer = co_await exchange(node, request, request.request_id, timeout);
  if (!answer) co_return answer.assume_error();
  if (const auto* reply = std::get_if<wire::Reply>(&answer.assume_value())) {
    if (reply->ok) co_return Error(ErrorCode::kProtocol, "Node " + node + " answered without a log");
    co_return reply->to_error();
  }
  if (!std::holds_alternative<wire::LogData>(answer.assume_value()))
    co_return Error(ErrorCode::kProtocol, "Node " + node + " answered with something else than a log");
  auto data = std::get<wire::LogData>(std::move(answer).assume_value());
  if (data.offset != request.offset || data.bytes.size() > request.limit)
    co_return Error(ErrorCode::kProtocol, "Node " + node + " answered with another part of the log");
  co_return std::move(data);
}

}  // namespace ckpt::coordinator
