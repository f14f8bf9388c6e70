// SPDX-License-Identifier: Apache-2.0
#include "coordinator/fleet/node.h"

#include <algorithm>

namespace ckpt::coordinator {

namespace {

std::size_t bytes_of(const wire::JobInstance& instance) {
  return sizeof instance + instance.name.size() + instance.reason.size() +
         instance.ranks.size() * sizeof(wire::RankState);
}

Error too_much(const std::string& node, const std::string& what) {
  return {ErrorCode::kProtocol, "Node " + node + " reports " + what + ", which is more than a node may have"};
}

}  // namespace

Result<void> Node::update(const wire::NodeInventory& inventory, std::int64_t now_ms) {
  std::size_t bytes = 0;
  for (const wire::JobInstance& instance : inventory.jobs) bytes += bytes_of(instance);
  if (inventory.jobs.size() > kMaxNodeInstances || bytes > kMaxNodeBytes)
    return too_much(row.name, std::to_string(inventory.jobs.size()) + " instances of jobs");
  if (inventory.labels.size() > kMaxNodeLabels || inventory.networks.size() > kMaxNodeNetworks)
    return too_much(row.name, std::to_string(inventory.labels.size()) + " labels and " +
                                  std::to_string(inventory.networks.size()) + " networks");
  instance_bytes = bytes;
  gpus = inventory.gpus;
  instances = inventory.jobs;
  moves_processes = inventory.moves_processes;
  resets_connections = inventory.resets_connections;
  gives_namespaces = inventory.gives_namespaces;
  process_reason = inventory.process_reason;
  driver_version = inventory.driver_version;
  gpu_reason = inventory.gpu_reason.substr(0, kMaxNodeReason);
  rack = inventory.rack;
  labels = inventory.labels;
  networks = inventory.networks;
  certificate_ends_s = inventory.certificate_ends_s;
  std::erase_if(gpu_memory, [this](const auto& entry) {
    return std::none_of(gpus.begin(), gpus.end(),
                        [&](const wire::GpuInfo& gpu) { return gpu.index == entry.first; });
  });
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
  return ok();
}

Result<void> Node::update(const wire::JobInstance& instance) {
  const auto at = std::find_if(instances.begin(), instances.end(), [&](const wire::JobInstance& known) {
    return known.job == instance.job && known.incarnation == instance.incarnation;
  });
  const bool is_new = at == instances.end();
  const std::size_t others = instance_bytes - (is_new ? 0 : bytes_of(*at));
  const std::size_t bytes = others + bytes_of(instance);
  if (instances.size() + (is_new ? 1 : 0) > kMaxNodeInstances || bytes > kMaxNodeBytes)
    return too_much(row.name, std::to_string(instances.size() + 1) + " instances of jobs");
  instance_bytes = bytes;
  if (is_new)
    instances.push_back(instance);
  else
    *at = instance;
  return ok();
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

}  // namespace ckpt::coordinator
