// SPDX-License-Identifier: Apache-2.0
// Where the ranks of one job would go that leave their places together. A plain value.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "coordinator/policies/placement/placement.h"
#include "coordinator/state/scope.h"

namespace ckpt::coordinator {

// Scopes that must take no job, each with the reason.
using ClosedScopes = std::vector<std::pair<Scope, std::string>>;

struct JobMovePlan {
  std::vector<Place> places;  // the new place of each rank that moves; empty if the move is not possible
  std::string reason;         // the reason why the move is not possible
  std::string obstacle;       // the reason why the move is not possible, if the job itself is the cause and
                              // not the GPUs; otherwise empty
  bool passing = false;       // the obstacle may pass once a job ends or starts, or a node reconnects
  bool no_gpu = false;        // no candidate is suitable
  std::vector<Candidate> candidates;

  [[nodiscard]] bool is_possible() const { return !places.empty(); }
};

}  // namespace ckpt::coordinator
