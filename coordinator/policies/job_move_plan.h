// SPDX-License-Identifier: Apache-2.0
// Where the ranks of one job would go that leave their places together. A plain value.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "coordinator/policies/placement/placement.h"
#include "coordinator/state/scope.h"

namespace ckpt::coordinator {

// Places that shall take no job, with the reason.
using ClosedScopes = std::vector<std::pair<Scope, std::string>>;

struct JobMovePlan {
  std::vector<Place> places;  // of each rank that goes; empty: not possible
  std::string reason;         // why not
  std::string obstacle;       // likewise, if it lies in the job and not in the GPUs; else empty
  bool passing = false;       // not possible, but it may be once something ends, starts or comes back
  bool no_gpu = false;        // not possible, since none of the candidates will do
  std::vector<Candidate> candidates;

  [[nodiscard]] bool is_possible() const { return !places.empty(); }
};

}  // namespace ckpt::coordinator
