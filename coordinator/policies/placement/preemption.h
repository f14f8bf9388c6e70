// SPDX-License-Identifier: Apache-2.0
// Selects the jobs to move away or park so that a job of higher priority fits (`run --preempt`). Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "coordinator/policies/placement/placement.h"

namespace ckpt::coordinator {

// A job that runs.
struct Occupant {
  JobId id = 0;
  std::string name;
  Place place;
  std::int32_t priority = 0;
  std::uint64_t bytes = 0;      // that become free once it is gone
  std::int64_t started_ms = 0;  // of equals the youngest goes first
  std::string obstacle;         // why it can be neither moved nor parked; empty: it can
  bool has_place = false;       // another GPU has the memory: it can be moved live
};

struct Preemption {
  Place place;
  std::vector<Occupant> victims;  // the first to go first; none could be left out
};

// Nothing if no GPU would have the memory even then. Jobs that can be moved go before those that must be
// parked. Of several GPUs one where none must be parked, then the one whose highest victim is the lowest, then
// that with fewest victims.
[[nodiscard]] std::optional<Preemption> plan_preemption(const std::vector<GpuView>& gpus,
                                                        const PlacementRequest& request,
                                                        std::int32_t priority,
                                                        const std::vector<Occupant>& occupants);

}  // namespace ckpt::coordinator
