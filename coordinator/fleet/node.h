// SPDX-License-Identifier: Apache-2.0
// A node: its row, its last inventory, and the connection of its agent. A value; NodeTable keeps the nodes.
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

// The GPU memory that an instance holds, by the same query of the driver that gave the free memory.
struct ShownMemory {
  JobId job = 0;
  Incarnation incarnation = 0;
  std::uint32_t gpu = 0;
  std::uint64_t bytes = 0;
};

// Limits on what the coordinator keeps of a node: of its inventory, and of later reports on its instances.
inline constexpr std::size_t kMaxNodeInstances = 16'384;
inline constexpr std::size_t kMaxNodeBytes = std::size_t{8} << 20;
inline constexpr std::size_t kMaxNodeLabels = 1'024;
inline constexpr std::size_t kMaxNodeNetworks = 64;
inline constexpr std::size_t kMaxNodeReason = 1'024;  // longer ones are cut

struct Node {
  NodeRow row;
  std::vector<wire::GpuInfo> gpus;           // as last reported
  std::vector<wire::JobInstance> instances;  // as last reported
  bool moves_processes = false;  // as last reported: host processes can be dumped and restored there
  std::string process_reason = "it has not said so";
  std::string driver_version;
  std::string gpu_reason;  // why it has no GPUs, or no fresh facts about them; at most kMaxNodeReason bytes
  std::string rack;
  std::vector<std::string> labels;
  std::vector<wire::DataNetwork> networks;
  std::int64_t certificate_ends_s = 0;  // in seconds since 1970; 0: not known
  std::map<std::uint32_t, MemoryHistory>
      gpu_memory;                  // in use, by GPU, as far as reported since the coordinator started
  std::vector<ShownMemory> shown;  // free_bytes of `gpus` is without this
  // From its hello (node_messages.h): for a coordinator that has forgotten something.
  std::vector<wire::OpenSwitch> switches;
  MigrationId newest_migration = 0;
  JobId newest_job = 0;
  bool describes = false;
  std::shared_ptr<control::Connection> connection;
  std::size_t instance_bytes = 0;  // of `instances`
  // kProtocol for more than a node may have; nothing is changed then.
  Result<void> update(const wire::NodeInventory& inventory, std::int64_t now_ms);
  // Replaces what was known of the instance. Errors: likewise.
  Result<void> update(const wire::JobInstance& instance);
  [[nodiscard]] bool connected() const { return connection != nullptr && connection->is_open(); }
  [[nodiscard]] const wire::JobInstance* find(JobId job, Incarnation incarnation) const;
  [[nodiscard]] std::uint64_t shown_bytes(JobId job, Incarnation incarnation) const;
  [[nodiscard]] std::uint64_t shown_bytes(std::uint32_t gpu) const;  // of all instances on it
};

}  // namespace ckpt::coordinator
