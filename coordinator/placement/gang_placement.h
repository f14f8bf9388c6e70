// SPDX-License-Identifier: Apache-2.0
// GPUs of one node for all ranks of a job, or none of them. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "coordinator/placement/placement.h"

namespace ckpt::coordinator {

struct GangPlan {
  GangPlan() = default;
  std::vector<Place> places;          // by rank; empty: not possible
  std::string reason;                 // why not
  std::vector<Candidate> candidates;  // all GPUs, as for a job of one rank
};

// `candidates`: those of one rank, best first (rank_candidates()). The GPUs that are nearest to each other by NVLink, then
// by their common ancestor on the board, are chosen; among equals those of the higher scores.
[[nodiscard]] GangPlan place_gang(std::vector<Candidate> candidates, const std::vector<GpuView>& gpus,
                                  std::size_t ranks);

}  // namespace ckpt::coordinator
