// SPDX-License-Identifier: Apache-2.0
#include "coordinator/fleet/gpu_views.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>

namespace ckpt::coordinator {

void describe_gpu(GpuView& view, const Node& node, const wire::GpuInfo& gpu) {
  view.model = gpu.model;
  view.driver = node.driver_version;
  view.rack = node.rack;
  view.networks = node.networks;
  view.mig = gpu.mig;
  view.remap_pending = gpu.remap_pending;
  view.remap_failed = gpu.remap_failed;
  view.recovery_action = gpu.recovery_action;
  view.numa_node = gpu.numa_node;
  view.fabric = gpu.fabric;
  view.peers.clear();
  for (const wire::GpuPeer& known : gpu.peers) {
    PeerView& peer = view.peers.emplace_back();
    peer.gpu = known.index;
    peer.nvlinks = known.nvlinks;
    peer.common_ancestor = known.common_ancestor;
  }
}

std::string why_expected(const Job& job) {
  constexpr std::int64_t kMsPerSecond = 1000;
  if (job.expected_bytes() <= job.held_bytes()) return {};
  if (job.spec.gpu_memory_bytes != 0) return "requested with --gpu-memory";
  const std::time_t when = job.memory.peak_ms() / kMsPerSecond;
  return fmt::format("it uses {} now, and used {} at {:%Y-%m-%dT%H:%M:%S}Z", bytes_text(job.held_bytes()),
                     bytes_text(job.memory.peak()), fmt::gmtime(when));
}

}  // namespace ckpt::coordinator
