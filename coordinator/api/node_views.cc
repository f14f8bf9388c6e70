// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api/node_views.h"

#include "coordinator/api/optional_text.h"

namespace ckpt::coordinator {
namespace {

constexpr std::int64_t kMinuteMs = 60'000;

std::optional<std::vector<api::Cordon>> cordons_if_any(const std::vector<Cordon>& cordons) {
  return cordons.empty() ? std::nullopt : std::optional(cordons_view(cordons));
}

api::GpuTopology topology_view(const wire::GpuInfo& gpu) {
  api::GpuTopology view;
  view.bus_id = text_if_any(gpu.bus_id);
  if (gpu.numa_node >= 0) view.numa_node = gpu.numa_node;
  view.fabric = text_if_any(gpu.fabric);
  for (const wire::GpuPeer& peer : gpu.peers)
    view.peers.push_back(
        {.index = peer.index, .nvlinks = peer.nvlinks, .common_ancestor = peer.common_ancestor});
  view.mig = gpu.mig;
  view.remap_pending = gpu.remap_pending;
  view.remap_failed = gpu.remap_failed;
  view.recovery_action = gpu.recovery_action;
  return view;
}

api::GpuErrors errors_view(const wire::GpuErrors& errors) {
  const auto counts = [](bool known, std::uint64_t corrected, std::uint64_t uncorrected) {
    return known ? std::optional(api::ErrorCounts{corrected, uncorrected}) : std::nullopt;
  };
  return {
      .since_load = counts(errors.volatile_known, errors.volatile_corrected, errors.volatile_uncorrected),
      .aggregate = counts(errors.aggregate_known, errors.aggregate_corrected, errors.aggregate_uncorrected),
      .remapped_rows = counts(errors.rows_known, errors.rows_corrected, errors.rows_uncorrected)};
}

}  // namespace

api::Cordon cordon_view(const Cordon& cordon) {
  return {.place = to_text(cordon.scope),
          .owner = std::string(to_string(cordon.owner)),
          .reason = text_if_any(cordon.reason),
          .since = time_text(cordon.since_ms)};
}

std::vector<api::Cordon> cordons_view(const std::vector<Cordon>& cordons) {
  std::vector<api::Cordon> view;
  view.reserve(cordons.size());
  for (const Cordon& cordon : cordons) view.push_back(cordon_view(cordon));
  return view;
}

api::MemoryHistory memory_view(const MemoryHistory& memory) {
  api::MemoryHistory view{
      .now_bytes = memory.now(), .peak_bytes = memory.peak(), .peak_time = time_if_any(memory.peak_ms())};
  const auto& known = memory.minutes();
  if (known.empty()) return view;
  const std::int64_t last = known.back().minute;
  const std::int64_t earliest = last - static_cast<std::int64_t>(MemoryHistory::kMinutes) + 1;
  view.minutes_until = time_text(last * kMinuteMs);
  std::int64_t next = 0;
  for (const MemoryMinute& entry : known) {
    if (entry.minute < earliest) continue;
    for (next = view.minutes.empty() ? entry.minute : next; next < entry.minute; ++next)
      view.minutes.emplace_back();
    view.minutes.emplace_back(entry.bytes);
    ++next;
  }
  return view;
}

api::GpuFault fault_view(const GpuFault& fault) {
  return {.reason = text_if_any(fault.reason),
          .time = time_if_any(fault.time_ms),
          .cordoned = fault.cordoned,
          .closed_until = time_if_any(fault.closed_until_ms),
          .text = to_text(fault)};
}

api::Node node_view(const Node& node, const JobTable& jobs, const CordonTable& cordons,
                    const PolicyTable& policy) {
  api::Node view;
  view.name = node.row.name;
  view.state = node.connected() ? "ready" : "unreachable";
  view.gpu_reason = text_if_any(node.gpu_reason);
  view.version = node.row.version;
  view.gpus = static_cast<std::uint32_t>(node.gpus.size());
  view.jobs = jobs.live_on(node.row.name);
  view.peer_address = node.row.peer_address;
  view.last_seen = time_if_any(node.row.last_seen_ms);
  view.driver = text_if_any(node.driver_version);
  view.rack = text_if_any(node.rack);
  view.labels = node.labels;
  for (const wire::DataNetwork& network : node.networks)
    view.networks.push_back({.name = network.name,
                             .address = network.address,
                             .addresses = network.addresses(),
                             .transport = std::string(to_string(network.transport))});
  view.certificate_ends = time_if_any(node.certificate_ends_s * 1000);
  view.cordons = cordons_if_any(cordons.of_node(node.row.name));
  view.evacuation = policy.evacuation_of(node.row.name);
  return view;
}

api::Gpu gpu_view(const Node& node, const wire::GpuInfo& gpu, std::uint64_t available, JobTable& jobs,
                  const CordonTable& cordons, const GpuFaults& faults) {
  const Place place(node.row.name, gpu.index);
  const auto fault = faults.find(place);
  const auto memory = node.gpu_memory.find(gpu.index);
  api::Gpu view;
  view.node = node.row.name;
  view.index = gpu.index;
  view.uuid = gpu.uuid;
  view.name = gpu.name;
  view.model = gpu.model;
  view.total_bytes = gpu.total_bytes;
  view.free_bytes = gpu.free_bytes;
  view.available_bytes = available;
  view.healthy = gpu.healthy && !(fault && fault->is_unhealthy());
  view.reason = text_if_any(gpu.healthy && !view.healthy ? to_text(*fault) : gpu.health_reason);
  view.node_silent = !node.connected();
  if (fault) view.finding = fault_view(*fault);
  for (const Job& job : jobs.live()) {
    if (!holds_gpu(job.state) || job.place() != place) continue;
    view.jobs.push_back(job_text(job.id));
    view.expected_bytes += job.expected_bytes();
  }
  view.memory = memory_view(memory == node.gpu_memory.end() ? MemoryHistory() : memory->second);
  view.topology = topology_view(gpu);
  view.errors = errors_view(gpu.errors);
  view.cordons = cordons_if_any(cordons.over(place));
  return view;
}

}  // namespace ckpt::coordinator
