// SPDX-License-Identifier: Apache-2.0
// The messages about a node's GPUs and the instances of jobs on it, as its agent reports them.
// control_messages.h has the order and the rules of all these messages.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libckpt/protocol/wire/codec.h"
#include "libckpt/protocol/wire/commit_messages.h"
#include "libckpt/record/names.h"

namespace ckpt::wire {

// The detected errors of a GPU's memory, and its replaced rows, as NVML counts them.
struct GpuErrors {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  bool volatile_known = false;  // whether the counts since the driver was loaded are known
  std::uint64_t volatile_corrected = 0;
  std::uint64_t volatile_uncorrected = 0;
  bool aggregate_known = false;  // whether the counts over the GPU's lifetime are known
  std::uint64_t aggregate_corrected = 0;
  std::uint64_t aggregate_uncorrected = 0;
  bool rows_known = false;  // whether the numbers of rows remapped for errors of either kind are known
  std::uint64_t rows_corrected = 0;
  std::uint64_t rows_uncorrected = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(volatile_known, volatile_corrected, volatile_uncorrected, aggregate_known, aggregate_corrected,
             aggregate_uncorrected, rows_known, rows_corrected, rows_uncorrected);
  }
};

// A different GPU of the same node, with its proximity.
struct GpuPeer {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  std::uint32_t index = 0;
  std::uint32_t nvlinks = 0;  // the number of active links to the other GPU, or to a switch that both GPUs
                              // are connected to
  // The level as NVML counts it: 0 one board, 10 one PCI switch, 20 several PCI switches, 30 one host bridge,
  // 40 one NUMA node, 50 across the machine.
  std::uint32_t common_ancestor = 50;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(index, nvlinks, common_ancestor);
  }
};

struct GpuInfo {
  static constexpr std::uint8_t kVersion = 3, kCompat = 1;
  std::uint32_t index = 0;
  std::string uuid;
  std::string name;
  std::string model;  // the GPU's model, which placement compares: equal models can exchange transparent jobs
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
  bool healthy = true;
  std::string health_reason;
  std::string bus_id;           // the address of the GPU in the form "DOMAIN:BUS:DEVICE.FUNCTION"
  std::int32_t numa_node = -1;  // the NUMA node with the nearest memory; -1 if it is not known
  std::string fabric;          // the NVLink domain beyond the node ("CLUSTER/CLIQUE"); empty if there is none
  std::vector<GpuPeer> peers;  // the node's other GPUs, as far as the driver reports them
  bool mig = false;            // whether the GPU is divided, so that it takes no work as a whole
  bool remap_pending = false;  // whether rows will be remapped at the next reset
  bool remap_failed = false;   // whether a row could not be remapped
  std::uint32_t recovery_action = 0;  // the recovery action (NVML field 230); 0 if there is none
  GpuErrors errors;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(index, uuid, name, model, total_bytes, free_bytes, healthy, health_reason, bus_id, numa_node,
             fabric, peers, mig, remap_pending, remap_failed, recovery_action, errors);
  }
};

enum class JobRole : std::uint8_t { kInvalid = 0, kFresh = 1, kStandby = 2 };
[[nodiscard]] constexpr bool is_known(JobRole r) {
  return r == JobRole::kFresh || r == JobRole::kStandby;
}
constexpr auto names_of(record::Of<JobRole>) {
  return record::names<JobRole>({{JobRole::kFresh, "fresh"}, {JobRole::kStandby, "standby"}});
}

enum class JobPhase : std::uint8_t {
  kInvalid = 0,
  kStarting = 1,  // the keeper has started the ranks, and none has reported ready
  kRunning = 2,
  kStandby = 3,  // a target's instance that waits in ckpt_ready
  kPaused = 4,   // a handover holds the instance at a barrier
  kExited = 5,   // all ranks have exited; exit_code has the result
  kMoved = 6,    // the instance exited because a different instance continues elsewhere
};
[[nodiscard]] constexpr bool is_known(JobPhase p) {
  return p >= JobPhase::kStarting && p <= JobPhase::kMoved;
}
[[nodiscard]] constexpr bool is_over(JobPhase p) {
  return p == JobPhase::kExited || p == JobPhase::kMoved;
}
constexpr auto names_of(record::Of<JobPhase>) {
  return record::names<JobPhase>({{JobPhase::kStarting, "starting"},
                                  {JobPhase::kRunning, "running"},
                                  {JobPhase::kStandby, "standby"},
                                  {JobPhase::kPaused, "paused"},
                                  {JobPhase::kExited, "exited"},
                                  {JobPhase::kMoved, "moved"}});
}
[[nodiscard]] constexpr std::string_view to_string(JobPhase phase) noexcept {
  return record::name_of(phase);
}

struct RankState {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  std::uint32_t rank = 0;
  std::int32_t pid = 0;
  std::uint32_t gpu_index = 0;
  std::uint64_t state_bytes = 0;  // the bytes that a migration of this rank would move; 0 while this is not
                                  // known
  std::uint64_t device_bytes =
      0;  // the rank's memory as the driver counts it; if the driver does not count it, state_bytes
  template <class A>
  decltype(auto) fields(A& a) {
    return a(rank, pid, gpu_index, state_bytes, device_bytes);
  }
};

// One instance of a job on one node. It is running, or it has ended and ForgetJob has not arrived yet.
struct JobInstance {
  static constexpr std::uint8_t kVersion = 5, kCompat = 1;
  JobId job = 0;
  std::string name;
  Incarnation incarnation =
      0;  // the incarnation at the start, even after a handover has raised the instance's incarnation
  JobRole role = JobRole::kFresh;
  JobPhase phase = JobPhase::kStarting;
  std::int32_t exit_code = -1;  // the exit code with kExited: 0..255, or 128 + signal
  bool movable = false;
  std::string reason;  // the reason why the instance is not movable (empty: not known yet), or why it could
                       // not start
  std::int64_t started_unix_ms = 0;
  std::uint64_t log_bytes = 0;
  std::vector<RankState> ranks;
  bool unknown = false;     // whether the instance's keeper does not answer: the instance may run, and
                            // `phase` is a guess
  Incarnation runs_as = 0;  // the incarnation of the last right to run that the node recorded; 0 from an
                            // older agent
  // The pause that a move would cause, estimated by the node's own rates. It is 0 if it is not known.
  std::int64_t pause_within_node_ns = 0;
  std::int64_t pause_between_nodes_ns = 0;
  std::int32_t obstacles = -1;    // the number of obstacles in the program to a move to another node;
                                  // negative if it is not known
  bool ended_on_request = false;  // with kExited: whether the node terminated the instance on request
  template <class A>
  decltype(auto) fields(A& a) {
    return a(job, name, incarnation, role, phase, exit_code, movable, reason, started_unix_ms, log_bytes,
             ranks, unknown, runs_as, pause_within_node_ns, pause_between_nodes_ns, obstacles,
             ended_on_request);
  }
};

// The way in which a network's lanes carry data. UCX, over TCP or RDMA, neither encrypts nor authenticates.
// With UCX, the operator has declared that the network has no other users.
enum class LaneTransport : std::uint8_t { kInvalid = 0, kTls = 1, kUcxTrusted = 2, kRdmaTrusted = 3 };
[[nodiscard]] constexpr bool is_known(LaneTransport t) {
  return t >= LaneTransport::kTls && t <= LaneTransport::kRdmaTrusted;
}
// Returns the names that agent.toml uses.
constexpr auto names_of(record::Of<LaneTransport>) {
  return record::names<LaneTransport>({{LaneTransport::kTls, "tls"},
                                       {LaneTransport::kUcxTrusted, "ucx-trusted"},
                                       {LaneTransport::kRdmaTrusted, "rdma-trusted"}});
}
[[nodiscard]] constexpr std::string_view to_string(LaneTransport transport) noexcept {
  return record::name_of(transport);
}

// A network that the node's movers and checkpoint store use. Nodes that use the same name for a network reach
// each other over it. With several addresses the lanes of a move are distributed over them: address i of one
// node reaches address i of the other node.
struct DataNetwork {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr std::size_t kMaxAddresses = 8;
  DataNetwork() = default;
  DataNetwork(std::string network_name, std::string ip, LaneTransport by)
      : name(std::move(network_name)), address(std::move(ip)), transport(by) {}
  std::string name;
  std::string address;  // this node's address, without a port
  LaneTransport transport = LaneTransport::kInvalid;
  std::vector<std::string> more_addresses;  // the second and later addresses of this node
  // Returns all addresses in their order, but at most kMaxAddresses.
  [[nodiscard]] std::vector<std::string> addresses() const;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(name, address, transport, more_addresses);
  }
  friend bool operator==(const DataNetwork&, const DataNetwork&) = default;
};

struct NodeInventory {
  static constexpr std::uint8_t kVersion = 7, kCompat = 1;
  std::string node;
  std::string peer_address;  // host:port at which other agents reach this agent
  std::vector<GpuInfo> gpus;
  std::vector<JobInstance> jobs;
  bool moves_processes = false;  // whether the node can dump and restore host processes, so that transparent
                                 // jobs may move in and out
  std::string process_reason;    // the reason why the node cannot move processes
  std::string driver_version;    // the version of the GPU driver; empty if it is not known
  std::string rack;              // the rack in agent.toml; empty if none is set
  std::vector<std::string> labels;      // KEY=VALUE entries from agent.toml
  std::vector<DataNetwork> networks;    // the networks of the node, the preferred one first; empty from an
                                        // older agent
  std::int64_t certificate_ends_s = 0;  // the expiry of the node's certificate, in seconds since 1970; 0
                                        // without a certificate, or from an older agent
  std::string gpu_reason;  // the reason for missing GPUs or outdated facts about them; empty if there is no
                           // problem
  // Whether the node accepts programs whose connections end at the move (--connections reset). An older agent
  // does not.
  bool resets_connections = false;
  // Whether the node starts and restores jobs with their own namespaces. An older agent would start them
  // without.
  bool gives_namespaces = false;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(node, peer_address, gpus, jobs, moves_processes, process_reason, driver_version, rack, labels,
             networks, certificate_ends_s, gpu_reason, resets_connections, gives_namespaces);
  }
};

// A handover that has not ended at this node.
struct OpenHandover {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  OpenHandover() = default;
  OpenHandover(MigrationId m, JobId j, Side which) : migration(m), job(j), side(which) {}
  MigrationId migration = 0;
  JobId job = 0;
  Side side = Side::kSource;  // the node's side; for a rank that stays: the source
  bool of_ranks = false;      // whether this is a move of ranks; `migration` is then that of the first rank
                              // that moves
  template <class A>
  decltype(auto) fields(A& a) {
    return a(migration, job, side, of_ranks);
  }
};

struct AgentHello {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kAgentHello;
  std::string software_version;
  NodeInventory inventory;
  // Facts that a coordinator may not know because its store was lost or is an older copy.
  std::vector<OpenHandover> handovers;
  MigrationId newest_migration = 0;  // the newest migration that this node took part in and remembers
  JobId newest_job = 0;
  bool describes = false;  // whether the agent answers DescribeJob and DescribeHandover
  template <class A>
  decltype(auto) fields(A& a) {
    return a(software_version, inventory, handovers, newest_migration, newest_job, describes);
  }
};

struct Welcome {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kWelcome;
  std::int64_t lease_term_ns = 0;
  std::int64_t handover_timeout_ns = 0;
  std::string peer_token;  // the token in hex digits, which agents require of each other on the peer link
  template <class A>
  decltype(auto) fields(A& a) {
    return a(lease_term_ns, handover_timeout_ns, peer_token);
  }
};

struct Inventory {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kInventory;
  NodeInventory inventory;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(inventory);
  }
};

// One changed instance. The next Inventory has the same facts, so a lost message does no harm.
struct JobChange {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kJobChange;
  JobInstance instance;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(instance);
  }
};

}  // namespace ckpt::wire
