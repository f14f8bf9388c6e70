// SPDX-License-Identifier: Apache-2.0
// The score of a suitable GPU. Each term is one function with its own weight. A term of zero is left out.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "coordinator/policies/placement/placement.h"

namespace ckpt::coordinator {
namespace {

// One job less on the GPU outweighs the sum of affinity, memory and model (1.45).
constexpr double kJobWeight = -2.0;
constexpr double kNodeJobWeight = -0.25;
constexpr double kNodeMigrationWeight = -0.3;
constexpr double kFreeWeight = 0.5;
constexpr double kModelWeight = 0.2;
constexpr double kNvlinkWeight = 0.4;
constexpr double kNumaWeight = 0.15;
constexpr double kAncestorWeight = 0.1;
constexpr double kRackWeight = 0.1;
constexpr unsigned kFarthestAncestor = 50;

using Term = std::optional<ScoreTerm>;
using AffinityTerm = Term (*)(const GpuView& gpu, const GpuView& other);

const PeerView* peer_of(const GpuView& gpu, const GpuView& other) {
  if (gpu.place.node != other.place.node) return nullptr;
  const auto at = std::find_if(gpu.peers.begin(), gpu.peers.end(),
                               [&](const PeerView& peer) { return peer.gpu == other.place.gpu; });
  return at == gpu.peers.end() ? nullptr : &*at;
}

Term nvlink(const GpuView& gpu, const GpuView& other) {
  const PeerView* peer = peer_of(gpu, other);
  if (peer != nullptr && peer->nvlinks > 0)
    return ScoreTerm(kNvlinkWeight, fmt::format("{} NVLink(s) to {}", peer->nvlinks, to_text(other.place)));
  if (gpu.fabric.empty() || gpu.fabric != other.fabric) return std::nullopt;
  return ScoreTerm(kNvlinkWeight, "in the NVLink domain of " + to_text(other.place));
}

Term numa(const GpuView& gpu, const GpuView& other) {
  if (gpu.place.node != other.place.node || gpu.numa_node < 0 || gpu.numa_node != other.numa_node)
    return std::nullopt;
  return ScoreTerm(kNumaWeight, fmt::format("at NUMA node {}, like {}", gpu.numa_node, to_text(other.place)));
}

const char* ancestor_text(unsigned level) {
  if (level < 10) return "one board";
  if (level < 20) return "one PCI switch";
  if (level < 30) return "PCI switches";
  return level < 40 ? "one host bridge" : "one NUMA node's bridges";
}

Term ancestor(const GpuView& gpu, const GpuView& other) {
  const PeerView* peer = peer_of(gpu, other);
  if (peer == nullptr || peer->common_ancestor >= kFarthestAncestor) return std::nullopt;
  const double affinity = 1 - static_cast<double>(peer->common_ancestor) / kFarthestAncestor;
  return ScoreTerm(kAncestorWeight * affinity,
                   fmt::format("{} with {}", ancestor_text(peer->common_ancestor), to_text(other.place)));
}

Term rack(const GpuView& gpu, const GpuView& other) {
  if (gpu.rack.empty() || gpu.rack != other.rack) return std::nullopt;
  return ScoreTerm(kRackWeight, "in rack " + gpu.rack + " as " + to_text(other.place));
}

constexpr std::array<AffinityTerm, 4> kAffinityTerms{nvlink, numa, ancestor, rack};

// Returns the best term among the terms for the other GPUs.
Term best_of(AffinityTerm affinity, const GpuView& gpu, const std::vector<const GpuView*>& others) {
  Term best;
  for (const GpuView* other : others) {
    Term term = affinity(gpu, *other);
    if (term && (!best || term->points > best->points)) best = std::move(term);
  }
  return best;
}

std::vector<const GpuView*> those_near(const PlacementRequest& request, const std::vector<GpuView>& gpus) {
  std::vector<const GpuView*> found;
  for (const Place& place : request.near) {
    for (const GpuView& gpu : gpus) {
      if (gpu.place == place) found.push_back(&gpu);
    }
  }
  return found;
}

ScoreTerm memory(const GpuView& gpu) {
  const double share = gpu.total_bytes == 0 ? 0
                                            : static_cast<double>(gpu.available_bytes()) /
                                                  static_cast<double>(gpu.total_bytes);
  return {kFreeWeight * share,
          fmt::format("{} free of {}{}", bytes_text(gpu.available_bytes()), bytes_text(gpu.total_bytes),
                      gpu.promised_bytes > 0 ? ", " + bytes_text(gpu.promised_bytes) + " promised" : "")};
}

}  // namespace

std::vector<ScoreTerm> score_terms(const GpuView& gpu, const PlacementRequest& request,
                                   const std::vector<GpuView>& gpus) {
  std::vector<ScoreTerm> terms;
  const std::vector<const GpuView*> others = those_near(request, gpus);
  for (const AffinityTerm affinity : kAffinityTerms) {
    if (Term term = best_of(affinity, gpu, others)) terms.push_back(std::move(*term));
  }
  terms.push_back(memory(gpu));
  terms.emplace_back(kJobWeight * gpu.jobs + kNodeJobWeight * gpu.node_jobs,
                     fmt::format("{} job(s) on the GPU, {} on the node", gpu.jobs, gpu.node_jobs));
  if (gpu.node_migrations > 0)
    terms.emplace_back(kNodeMigrationWeight * gpu.node_migrations,
                       fmt::format("{} open migration(s) of its node", gpu.node_migrations));
  if (!request.preferred_model.empty() && gpu.model == request.preferred_model)
    terms.emplace_back(kModelWeight, "same model");
  return terms;
}

}  // namespace ckpt::coordinator
