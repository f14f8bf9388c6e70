// SPDX-License-Identifier: Apache-2.0
// GPUs for all ranks of a job, or none of them. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "coordinator/policies/placement/placement.h"

namespace ckpt::coordinator {

// How the ranks of a job stand.
struct GangShape {
  std::size_t ranks = 1;
  bool one_node = true;
  // Not of one node: spread evenly over these, in this order, the first ones with one more; a node that is named
  // twice takes two shares. Empty: over as few nodes as
  // can take them, of one rack if one has enough.
  std::vector<std::string> nodes;
  // GPUs of ranks that stay where they are. Near to them is chosen first: a node of theirs, then their NVLink domain, then
  // their rack.
  std::vector<Place> beside;
};

struct GangPlan {
  std::vector<Place> places;          // by rank, those of a node side by side; empty: not possible
  std::string reason;                 // why not
  std::vector<Candidate> candidates;  // all GPUs, as for a job of one rank
};

// `candidates`: those of one rank, best first (rank_candidates()). Of a node the GPUs that are nearest to each other by
// NVLink, then by their common ancestor on the board, are chosen. Where the driver tells no ancestor the NUMA node counts.
// Among equals those of the higher scores are chosen.
[[nodiscard]] GangPlan place_gang(std::vector<Candidate> candidates, const std::vector<GpuView>& gpus,
                                  const GangShape& shape);

// "node-a 2 ranks, node-b 1 rank".
[[nodiscard]] std::string shares_text(const std::vector<Place>& places);

}  // namespace ckpt::coordinator
