// SPDX-License-Identifier: Apache-2.0
// The placement of all ranks of a job on GPUs, or of none. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "coordinator/policies/placement/placement.h"

namespace ckpt::coordinator {

// The distribution of a job's ranks over nodes.
struct GangShape {
  std::size_t ranks = 1;
  bool one_node = true;
  // The nodes for ranks that need not be on one node. The ranks are spread evenly in this order, and the
  // first nodes take one more. A node that is named twice takes two shares. An empty list means as few nodes
  // as possible, all of one rack if one rack has enough GPUs.
  std::vector<std::string> nodes;
  // The GPUs of ranks that stay. GPUs near to them are preferred: first on one of their nodes, then in their
  // NVLink domain, then in their rack.
  std::vector<Place> beside;
};

struct GangPlan {
  std::vector<Place> places;  // places by rank, with the ranks of a node adjacent; empty: not possible
  std::string reason;         // why the placement is not possible
  std::vector<Candidate> candidates;  // all GPUs, as for a job of one rank
};

// Places the ranks. `candidates` are those of one rank, best first (rank_candidates()). On a node the GPUs
// nearest to each other are chosen: by NVLink, then by their common ancestor on the board. If the driver
// reports no ancestor, the NUMA node is used. Among equals the GPUs with higher scores are chosen.
[[nodiscard]] GangPlan place_gang(std::vector<Candidate> candidates, const std::vector<GpuView>& gpus,
                                  const GangShape& shape);

// Returns the number of ranks on each node as text: "node-a 2 ranks, node-b 1 rank".
[[nodiscard]] std::string shares_text(const std::vector<Place>& places);

}  // namespace ckpt::coordinator
