// SPDX-License-Identifier: Apache-2.0
// The messages on a node's GPUs and the instances of jobs on it, as its agent reports them.
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

// Errors of a GPU's memory that were found, and rows of it that were replaced, as NVML counts.
struct GpuErrors {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  bool volatile_known = false;  // since the driver was loaded
  std::uint64_t volatile_corrected = 0;
  std::uint64_t volatile_uncorrected = 0;
  bool aggregate_known = false;  // of the GPU's life
  std::uint64_t aggregate_corrected = 0;
  std::uint64_t aggregate_uncorrected = 0;
  bool rows_known = false;  // remapped for errors of either kind
  std::uint64_t rows_corrected = 0;
  std::uint64_t rows_uncorrected = 0;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(volatile_known, volatile_corrected, volatile_uncorrected, aggregate_known, aggregate_corrected,
             aggregate_uncorrected, rows_known, rows_corrected, rows_uncorrected);
  }
};

// How near another GPU of the same node is.
struct GpuPeer {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  std::uint32_t index = 0;
  std::uint32_t nvlinks = 0;  // that are up, to it or to a switch that both hang off
  // As NVML counts: 0 one board, 10 one PCI switch, 20 several, 30 one host bridge, 40 one NUMA node, 50
  // across the machine.
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
  std::string model;  // compared by placement: equal models can exchange transparent jobs
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
  bool healthy = true;
  std::string health_reason;
  std::string bus_id;                 // "DOMAIN:BUS:DEVICE.FUNCTION"
  std::int32_t numa_node = -1;        // whose memory is nearest; -1: not known
  std::string fabric;                 // NVLink domain beyond the node ("CLUSTER/CLIQUE"); empty: none
  std::vector<GpuPeer> peers;         // the node's other GPUs, as far as the driver reports them
  bool mig = false;                   // divided: the GPU as a whole takes no work
  bool remap_pending = false;         // rows are remapped at the next reset
  bool remap_failed = false;          // a row could not be remapped
  std::uint32_t recovery_action = 0;  // NVML field 230; 0: none
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
  kStarting = 1,  // the keeper has started the ranks, none has reported ready
  kRunning = 2,
  kStandby = 3,  // a target's instance that waits in ckpt_ready
  kPaused = 4,   // held at a barrier by a switch
  kExited = 5,   // all ranks are gone; see exit_code
  kMoved = 6,    // ended because another instance goes on elsewhere
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
  std::uint64_t state_bytes = 0;  // what a migration of this rank would move; 0 while unknown
  std::uint64_t device_bytes =
      0;  // what it holds as the driver counts, or state_bytes where the driver does not
  template <class A>
  decltype(auto) fields(A& a) {
    return a(rank, pid, gpu_index, state_bytes, device_bytes);
  }
};

// One running (or ended, until ForgetJob) instance of a job on one node.
struct JobInstance {
  static constexpr std::uint8_t kVersion = 5, kCompat = 1;
  JobId job = 0;
  std::string name;
  Incarnation incarnation =
      0;  // the one it was started as, also after a switch gave it a higher right to run
  JobRole role = JobRole::kFresh;
  JobPhase phase = JobPhase::kStarting;
  std::int32_t exit_code = -1;  // with kExited: 0..255, 128 + signal
  bool movable = false;
  std::string reason;  // why it is not movable (empty: not known yet), or why it could not start
  std::int64_t started_unix_ms = 0;
  std::uint64_t log_bytes = 0;
  std::vector<RankState> ranks;
  bool unknown = false;     // its keeper does not answer: it may run, and `phase` is a guess
  Incarnation runs_as = 0;  // the right to run that its node recorded last; 0: from an older agent
  // How long a move would pause it, by its node's own rates; 0: not known.
  std::int64_t pause_within_node_ns = 0;
  std::int64_t pause_between_nodes_ns = 0;
  std::int32_t obstacles = -1;  // things of the program that keep it from another node; negative: not known
  bool ended_as_told = false;   // with kExited: its node ended it
  template <class A>
  decltype(auto) fields(A& a) {
    return a(job, name, incarnation, role, phase, exit_code, movable, reason, started_unix_ms, log_bytes,
             ranks, unknown, runs_as, pause_within_node_ns, pause_between_nodes_ns, obstacles, ended_as_told);
  }
};

// How lanes of a network carry data. UCX, over TCP or RDMA, neither encrypts nor authenticates: the operator has
// declared that nobody else is on that network.
enum class LaneTransport : std::uint8_t { kInvalid = 0, kTls = 1, kUcxTrusted = 2, kRdmaTrusted = 3 };
[[nodiscard]] constexpr bool is_known(LaneTransport t) {
  return t >= LaneTransport::kTls && t <= LaneTransport::kRdmaTrusted;
}
// The names that agent.toml has for them.
constexpr auto names_of(record::Of<LaneTransport>) {
  return record::names<LaneTransport>({{LaneTransport::kTls, "tls"},
                                       {LaneTransport::kUcxTrusted, "ucx-trusted"},
                                       {LaneTransport::kRdmaTrusted, "rdma-trusted"}});
}
[[nodiscard]] constexpr std::string_view to_string(LaneTransport transport) noexcept {
  return record::name_of(transport);
}

// A network that the node's movers and checkpoint store use. Nodes that give one the same name reach each
// other over it. With several addresses the lanes of a move are spread over them: address i of one node
// reaches address i of the other.
struct DataNetwork {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr std::size_t kMaxAddresses = 8;
  DataNetwork() = default;
  DataNetwork(std::string network_name, std::string ip, LaneTransport by)
      : name(std::move(network_name)), address(std::move(ip)), transport(by) {}
  std::string name;
  std::string address;  // of this node, without a port
  LaneTransport transport = LaneTransport::kInvalid;
  std::vector<std::string> more_addresses;  // the second and later ones
  // All of them, in their order, but no more than kMaxAddresses.
  [[nodiscard]] std::vector<std::string> addresses() const;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(name, address, transport, more_addresses);
  }
  friend bool operator==(const DataNetwork&, const DataNetwork&) = default;
};

struct NodeInventory {
  static constexpr std::uint8_t kVersion = 6, kCompat = 1;
  std::string node;
  std::string peer_address;  // host:port where other agents reach this one
  std::vector<GpuInfo> gpus;
  std::vector<JobInstance> jobs;
  bool moves_processes = false;  // it can dump and restore host processes: transparent jobs may come and go
  std::string process_reason;    // why not
  std::string driver_version;    // of the GPU driver; empty: not known
  std::string rack;              // as in its agent.toml; empty: not given
  std::vector<std::string> labels;      // KEY=VALUE, likewise
  std::vector<DataNetwork> networks;    // the preferred one first; empty: an older agent
  std::int64_t certificate_ends_s = 0;  // in seconds since 1970; 0: it has none, or an older agent
  std::string gpu_reason;  // why there are no GPUs, or no fresh facts about them; empty: all is well
  template <class A>
  decltype(auto) fields(A& a) {
    return a(node, peer_address, gpus, jobs, moves_processes, process_reason, driver_version, rack, labels,
             networks, certificate_ends_s, gpu_reason);
  }
};

// A switch that is not over at this node.
struct OpenSwitch {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  OpenSwitch() = default;
  OpenSwitch(MigrationId m, JobId j, Side which) : migration(m), job(j), side(which) {}
  MigrationId migration = 0;
  JobId job = 0;
  Side side = Side::kSource;  // of a rank that stays the source
  bool of_ranks = false;      // a move of ranks: `migration` is that of the first one that moves
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
  // For a coordinator whose store was lost, or is an older copy: what it may not know.
  std::vector<OpenSwitch> switches;
  MigrationId newest_migration = 0;  // that this node took part in and remembers
  JobId newest_job = 0;
  bool describes = false;  // answers DescribeJob and DescribeSwitch
  template <class A>
  decltype(auto) fields(A& a) {
    return a(software_version, inventory, switches, newest_migration, newest_job, describes);
  }
};

struct Welcome {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr FrameType kFrame = FrameType::kWelcome;
  std::int64_t lease_term_ns = 0;
  std::int64_t switch_timeout_ns = 0;
  std::string peer_token;  // hex; agents ask it of each other on the peer link
  template <class A>
  decltype(auto) fields(A& a) {
    return a(lease_term_ns, switch_timeout_ns, peer_token);
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

// One instance changed. The same facts follow in the next Inventory, so a lost one does no harm.
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
