// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/placement/preemption.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "coordinator/policies/placement/move_placement.h"

namespace ckpt::coordinator {
namespace {

std::uint64_t sum_of(const std::vector<Occupant>& victims) {
  std::uint64_t sum = 0;
  for (const Occupant& victim : victims) sum += victim.bytes;
  return sum;
}

bool fits(const GpuView& gpu, const PlacementRequest& request, const std::vector<Occupant>& victims) {
  // The promised memory may exceed the free memory, and then available_bytes() would be 0 for every choice of
  // victims.
  const std::uint64_t wanted = request.memory_bytes + request.margin_bytes + gpu.promised_bytes;
  return gpu.free_bytes + sum_of(victims) >= wanted;
}

// Returns the first jobs of `may_go` whose memory suffices, without unnecessary ones. Returns nullopt if even
// all of them do not suffice.
std::optional<std::vector<Occupant>> victims_on(const GpuView& gpu, const PlacementRequest& request,
                                                const std::vector<Occupant>& may_go) {
  std::vector<Occupant> victims;
  for (const Occupant& next : may_go) {
    if (fits(gpu, request, victims)) break;
    victims.push_back(next);
  }
  if (!fits(gpu, request, victims)) return std::nullopt;
  // Drops victims that proved unnecessary, the highest priority first.
  for (std::size_t i = victims.size(); i-- > 0;) {
    std::vector<Occupant> without = victims;
    without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
    if (fits(gpu, request, without)) victims = std::move(without);
  }
  return victims;
}

bool milder(const Preemption& a, const Preemption& b) {
  const auto harm = [](const Preemption& p) {
    std::int32_t highest = INT32_MIN;
    for (const Occupant& victim : p.victims) highest = std::max(highest, victim.priority);
    const bool parks = std::any_of(p.victims.begin(), p.victims.end(),
                                   [](const Occupant& victim) { return !victim.has_place; });
    return std::tuple(parks, highest, p.victims.size(), sum_of(p.victims), p.place.node, p.place.gpu);
  };
  return harm(a) < harm(b);
}

// Returns the GPU to which the occupant would move, or nullopt if no other GPU has the memory.
std::optional<Place> target_of(const std::vector<GpuView>& gpus, const Occupant& occupant) {
  const auto candidates = rank_targets(gpus, occupant.move, occupant.place);
  if (candidates.empty() || !candidates.front().suitable) return std::nullopt;
  return candidates.front().place;
}

// Returns the obstacles of the first few jobs: " (NAME: why it stays; ...)".
std::string first_obstacles(const std::vector<Occupant>& occupants) {
  constexpr int kMaxNamed = 3;
  std::string text;
  int named = 0;
  for (const Occupant& occupant : occupants) {
    if (occupant.obstacle.empty() || ++named > kMaxNamed) continue;
    text += (named == 1 ? " (" : "; ") + occupant.name + ": " + occupant.obstacle;
  }
  if (named > kMaxNamed) text += fmt::format("; and {} more", named - kMaxNamed);
  return named == 0 ? text : text + ")";
}

}  // namespace

void find_places(const std::vector<GpuView>& gpus, std::vector<Occupant>& occupants) {
  for (Occupant& occupant : occupants)
    occupant.has_place = occupant.obstacle.empty() && target_of(gpus, occupant).has_value();
}

std::vector<std::optional<Place>> targets_of(std::vector<GpuView> gpus,
                                             const std::vector<Occupant>& victims) {
  std::vector<std::optional<Place>> targets;
  for (const Occupant& victim : victims) {
    targets.push_back(target_of(gpus, victim));
    if (targets.back()) count_promised({{*targets.back(), victim.bytes}}, gpus);
  }
  return targets;
}

std::string why_no_preemption(std::int32_t priority, const std::vector<Occupant>& occupants) {
  return fmt::format("moving or parking jobs of a priority below {} would not help{}", priority,
                     first_obstacles(occupants));
}

std::optional<Preemption> plan_preemption(const std::vector<GpuView>& gpus, const PlacementRequest& request,
                                          std::int32_t priority, const std::vector<Occupant>& occupants) {
  std::optional<Preemption> best;
  for (const GpuView& gpu : gpus) {
    if (!objections_but_memory(gpu, request).empty()) continue;
    std::vector<Occupant> may_go;
    for (const Occupant& occupant : occupants) {
      if (occupant.place == gpu.place && occupant.priority < priority && occupant.obstacle.empty())
        may_go.push_back(occupant);
    }
    std::sort(may_go.begin(), may_go.end(), [](const Occupant& a, const Occupant& b) {
      return std::tie(b.has_place, a.priority, b.started_ms, b.id) <
             std::tie(a.has_place, b.priority, a.started_ms, a.id);
    });
    auto victims = victims_on(gpu, request, may_go);
    if (!victims) continue;
    Preemption found;
    found.place = gpu.place;
    found.victims = std::move(*victims);
    if (!best || milder(found, *best)) best = std::move(found);
  }
  return best;
}

}  // namespace ckpt::coordinator
