// SPDX-License-Identifier: Apache-2.0
// A node: its row, its last inventory, and the connection of its agent. A plain value; NodeTable stores the
// nodes.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/state/store.h"
#include "libckpt/net/control/connection.h"
#include "libckpt/protocol/wire/job_messages.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::coordinator {

// The GPU memory of an instance. It is from the same driver query as the GPU's free memory.
struct ShownMemory {
  JobId job = 0;
  Incarnation incarnation = 0;
  std::uint32_t gpu = 0;
  std::uint64_t bytes = 0;
};

// Limits on the data that the coordinator stores about a node, from its inventory and from later reports on
// its instances.
inline constexpr std::size_t kMaxNodeInstances = 16'384;
inline constexpr std::size_t kMaxNodeBytes = std::size_t{8} << 20;
inline constexpr std::size_t kMaxNodeLabels = 1'024;
inline constexpr std::size_t kMaxNodeNetworks = 64;
inline constexpr std::size_t kMaxNodeReason = 1'024;  // the maximum length of gpu_reason in bytes; longer
                                                      // reasons are truncated

struct Node {
  NodeRow row;
  std::vector<wire::GpuInfo> gpus;           // the node's GPUs, as last reported
  std::vector<wire::JobInstance> instances;  // the instances on the node, as last reported
  bool moves_processes = false;  // host processes can be dumped and restored on the node, as last reported
  std::string process_reason = "the node has not reported support for process moves";
  bool resets_connections = false;  // the node restores programs whose connections end in the move, as last
                                    // reported; such a connection reports a reset
  bool gives_namespaces = false;    // the node starts and restores jobs with their own namespaces, as last
                                    // reported
  std::string driver_version;
  std::string gpu_reason;  // why the node has no GPUs, or no current facts about them; at most kMaxNodeReason
                           // bytes
  std::string rack;
  std::vector<std::string> labels;
  std::vector<wire::DataNetwork> networks;
  std::int64_t certificate_ends_s = 0;  // the expiry of the agent's certificate in seconds since 1970; 0: not
                                        // known
  std::map<std::uint32_t, MemoryHistory>
      gpu_memory;  // the memory in use by GPU, as far as reported since the coordinator started
  std::vector<ShownMemory> shown;  // the memory of instances; free_bytes of `gpus` does not include it
  // These fields are from the node's hello (node_messages.h). A coordinator that has lost data uses them.
  std::vector<wire::OpenHandover> handovers;
  MigrationId newest_migration = 0;
  JobId newest_job = 0;
  bool describes = false;
  std::shared_ptr<control::Connection> connection;
  std::size_t instance_bytes = 0;  // the size of `instances` in bytes
  // Replaces the inventory. Returns kProtocol and changes nothing if the node exceeds a limit.
  Result<void> update(const wire::NodeInventory& inventory, std::int64_t now_ms);
  // Replaces the report on one instance. Returns kProtocol and changes nothing if the node exceeds a limit.
  Result<void> update(const wire::JobInstance& instance);
  [[nodiscard]] bool connected() const { return connection != nullptr && connection->is_open(); }
  [[nodiscard]] const wire::JobInstance* find(JobId job, Incarnation incarnation) const;
  [[nodiscard]] std::uint64_t shown_bytes(JobId job, Incarnation incarnation) const;
  [[nodiscard]] std::uint64_t shown_bytes(std::uint32_t gpu) const;  // returns the memory of all instances on
                                                                     // the GPU
};

}  // namespace ckpt::coordinator
