// SPDX-License-Identifier: Apache-2.0
#include "coordinator/fleet/node.h"

#include <algorithm>

namespace ckpt::coordinator {

void Node::keep(const wire::NodeInventory& inventory, std::int64_t now_ms) {
  gpus = inventory.gpus;
  instances = inventory.jobs;
  moves_processes = inventory.moves_processes;
  process_reason = inventory.process_reason;
  driver_version = inventory.driver_version;
  rack = inventory.rack;
  labels = inventory.labels;
  networks = inventory.networks;
  certificate_ends_s = inventory.certificate_ends_s;
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

void Node::keep(const wire::JobInstance& instance) {
  const auto at = std::find_if(instances.begin(), instances.end(), [&](const wire::JobInstance& known) {
    return known.job == instance.job && known.incarnation == instance.incarnation;
  });
  if (at == instances.end())
    instances.push_back(instance);
  else
    *at = instance;
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
