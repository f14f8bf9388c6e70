// SPDX-License-Identifier: Apache-2.0
// The selection of jobs to move away or park so that a job of higher priority fits (`run --preempt`). Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "coordinator/policies/placement/placement.h"

namespace ckpt::coordinator {

// A running job that may be displaced.
struct Occupant {
  JobId id = 0;
  std::string name;
  Place place;
  std::int32_t priority = 0;
  std::uint64_t bytes = 0;      // the memory that becomes free when the job leaves
  std::int64_t started_ms = 0;  // the job's start time; among equals the youngest job is displaced first
  std::string obstacle;    // why the job can be neither moved nor parked; empty: it can be moved or parked
  PlacementRequest move;   // what a live move of the job needs
  bool has_place = false;  // another GPU has the memory, so the job can be moved live (find_places())
};

struct Preemption {
  Place place;
  std::vector<Occupant> victims;  // the jobs to displace, in order; every one of them is necessary
};

// Sets Occupant::has_place for each occupant that can be moved live, as if no other occupant moved.
void find_places(const std::vector<GpuView>& gpus, std::vector<Occupant>& occupants);

// Plans a preemption. Returns nullopt if no GPU would have the memory even then. Jobs that can be moved are
// displaced before jobs that must be parked. A GPU where no job must be parked is preferred. Then the GPU
// whose highest victim is the lowest is preferred, and then the GPU with the fewest victims.
[[nodiscard]] std::optional<Preemption> plan_preemption(const std::vector<GpuView>& gpus,
                                                        const PlacementRequest& request,
                                                        std::int32_t priority,
                                                        const std::vector<Occupant>& occupants);

// Returns the target of each victim's live move, or nullopt for a victim that is parked. The victims move in
// order. Memory that earlier victims need is not available to later ones.
[[nodiscard]] std::vector<std::optional<Place>> targets_of(std::vector<GpuView> gpus,
                                                           const std::vector<Occupant>& victims);

// Returns why plan_preemption() found nothing, with the obstacles of the first few occupants.
[[nodiscard]] std::string why_no_preemption(std::int32_t priority, const std::vector<Occupant>& occupants);

}  // namespace ckpt::coordinator
