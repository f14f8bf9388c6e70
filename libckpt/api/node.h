// SPDX-License-Identifier: Apache-2.0
// Nodes and their GPUs as the API shows them (docs/api.md). Texts are places ("node-a:0"), ids and times (RFC
// 3339, UTC). An optional member without a value is null.
// Threads: plain values. Errors: none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libckpt/record/fields.h"

namespace ckpt::api {

struct Cordon {
  std::string place;
  std::string owner;  // the owner of the cordon: operator or health
  std::optional<std::string> reason;
  std::string since;
};
template <std::same_as<Cordon> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("place", &T::place), record::field("owner", &T::owner),
                        record::field("reason", &T::reason), record::field("since", &T::since));
}

// A network for data between nodes.
struct Network {
  std::string name;
  std::string address;  // the address of this node in the network
  std::vector<std::string> addresses;
  std::string transport;  // the transport of the network's lanes: tls, ucx-trusted or rdma-trusted
};
template <std::same_as<Network> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("name", &T::name), record::field("address", &T::address),
                        record::field("addresses", &T::addresses), record::field("transport", &T::transport));
}

struct Node {
  std::string name;
  std::string state;                      // the state of the network: ready or unreachable
  std::optional<std::string> gpu_reason;  // the reason for missing GPUs, or for outdated facts about them
  std::string version;
  std::uint32_t gpus = 0;
  std::uint32_t jobs = 0;  // the number of jobs on the node
  std::string peer_address;
  std::optional<std::string> last_seen;
  std::optional<std::string> driver;
  std::optional<std::string> rack;
  std::vector<std::string> labels;
  std::vector<Network> networks;
  std::optional<std::string> certificate_ends;
  std::optional<std::vector<Cordon>> cordons;  // the cordons of the node and of its GPUs
  std::string evacuation;                      // the state of evacuation on the node: on, paused or stopped
};
template <std::same_as<Node> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("name", &T::name), record::field("state", &T::state),
                        record::field("gpu_reason", &T::gpu_reason), record::field("version", &T::version),
                        record::field("gpus", &T::gpus), record::field("jobs", &T::jobs),
                        record::field("peer_address", &T::peer_address),
                        record::field("last_seen", &T::last_seen), record::field("driver", &T::driver),
                        record::field("rack", &T::rack), record::field("labels", &T::labels),
                        record::field("networks", &T::networks),
                        record::field("certificate_ends", &T::certificate_ends),
                        record::field("cordons", &T::cordons), record::field("evacuation", &T::evacuation));
}

// The used device memory: the current value, the maximum, and one value per minute of the last hour.
struct MemoryHistory {
  std::uint64_t now_bytes = 0;
  std::uint64_t peak_bytes = 0;
  std::optional<std::string> peak_time;
  std::optional<std::string> minutes_until;           // the time of the last minute
  std::vector<std::optional<std::uint64_t>> minutes;  // one value for every minute; null for a minute without
                                                      // a report
};
template <std::same_as<MemoryHistory> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(
      record::field("now_bytes", &T::now_bytes), record::field("peak_bytes", &T::peak_bytes),
      record::field("peak_time", &T::peak_time), record::field("minutes_until", &T::minutes_until),
      record::field("minutes", &T::minutes));
}

// The finding that makes a GPU suspect.
struct GpuFault {
  std::optional<std::string> reason;
  std::optional<std::string> time;
  bool cordoned = false;
  std::optional<std::string> closed_until;  // the time before which the GPU takes no job
  std::string text;                         // the whole finding as text, for people
};
template <std::same_as<GpuFault> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("reason", &T::reason), record::field("time", &T::time),
                        record::field("cordoned", &T::cordoned),
                        record::field("closed_until", &T::closed_until), record::field("text", &T::text));
}

// A different GPU of the same node, with its proximity.
struct GpuPeer {
  std::uint32_t index = 0;
  std::uint32_t nvlinks = 0;
  std::uint32_t common_ancestor = 0;  // the level of the common ancestor, as NVML numbers the levels
};
template <std::same_as<GpuPeer> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("index", &T::index), record::field("nvlinks", &T::nvlinks),
                        record::field("common_ancestor", &T::common_ancestor));
}

struct GpuTopology {
  std::optional<std::string> bus_id;
  std::optional<std::int32_t> numa_node;
  std::optional<std::string> fabric;
  std::vector<GpuPeer> peers;
  bool mig = false;
  bool remap_pending = false;
  bool remap_failed = false;
  std::uint32_t recovery_action = 0;
};
template <std::same_as<GpuTopology> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("bus_id", &T::bus_id), record::field("numa_node", &T::numa_node),
                        record::field("fabric", &T::fabric), record::field("peers", &T::peers),
                        record::field("mig", &T::mig), record::field("remap_pending", &T::remap_pending),
                        record::field("remap_failed", &T::remap_failed),
                        record::field("recovery_action", &T::recovery_action));
}

struct ErrorCounts {
  std::uint64_t corrected = 0;
  std::uint64_t uncorrected = 0;
};
template <std::same_as<ErrorCounts> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("corrected", &T::corrected),
                        record::field("uncorrected", &T::uncorrected));
}

// Errors of the GPU's memory. A null member means that the driver does not count them.
struct GpuErrors {
  std::optional<ErrorCounts> since_load;  // the errors counted since the driver was loaded
  std::optional<ErrorCounts> aggregate;   // the errors counted over the GPU's lifetime
  std::optional<ErrorCounts> remapped_rows;
};
template <std::same_as<GpuErrors> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("volatile", &T::since_load), record::field("aggregate", &T::aggregate),
                        record::field("remapped_rows", &T::remapped_rows));
}

struct Gpu {
  std::string node;
  std::uint32_t index = 0;
  std::string uuid;
  std::string name;
  std::string model;
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
  std::uint64_t available_bytes = 0;  // the memory that placement would give to a new job
  bool healthy = false;
  std::optional<std::string> reason;  // the reason why the GPU is not healthy
  bool node_silent = false;           // whether the node is silent, so that none of these facts are current
  std::optional<GpuFault> finding;
  std::vector<std::string> jobs;
  std::uint64_t expected_bytes = 0;  // the memory that the GPU's jobs are expected to need
  MemoryHistory memory;
  GpuTopology topology;
  GpuErrors errors;
  std::optional<std::vector<Cordon>> cordons;  // the cordons that apply to the GPU
};
template <std::same_as<Gpu> T>
constexpr auto fields_of(record::Of<T>) {
  return record::fields(record::field("node", &T::node), record::field("index", &T::index),
                        record::field("uuid", &T::uuid), record::field("name", &T::name),
                        record::field("model", &T::model), record::field("total_bytes", &T::total_bytes),
                        record::field("free_bytes", &T::free_bytes),
                        record::field("available_bytes", &T::available_bytes),
                        record::field("healthy", &T::healthy), record::field("reason", &T::reason),
                        record::field("node_silent", &T::node_silent), record::field("finding", &T::finding),
                        record::field("jobs", &T::jobs), record::field("expected_bytes", &T::expected_bytes),
                        record::field("memory", &T::memory), record::field("topology", &T::topology),
                        record::field("errors", &T::errors), record::field("cordons", &T::cordons));
}

}  // namespace ckpt::api
