// SPDX-License-Identifier: Apache-2.0
// Asks the nodes of both sides whether a move would begin: the job's own node first, then all targets at once. Dry runs
// and looks at a job use it. Nothing is touched.
// Threads: one io_context on one thread. Ownership: borrows `calls`. Errors: each target's answer has its own, kRefused
// or kNotSupported where a node would not take part. A node that does not answer was not asked, which is no yes.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "coordinator/fleet/node_calls.h"
#include "coordinator/policies/placement/networks.h"
#include "coordinator/policies/placement/placement.h"
#include "coordinator/state/model.h"

namespace ckpt::coordinator {

inline constexpr std::chrono::seconds kCheckAnswer{10};
// So many targets of one job are asked at once.
inline constexpr std::size_t kMaxAskedTargets = 8;

struct MoveQuestion {
  struct Target {
    Place place;
    Result<SharedNetwork> network;  // with the job's node
  };
  wire::JobSpec spec;
  wire::Incarnation incarnation = 0;  // that it runs as
  Place from;
  std::vector<Target> targets;
};

struct TargetAnswer {
  Place place;
  Result<void> takes = ok();
  bool is_of_source = false;  // the job's own node refused, or did not answer
};

// In the order of the targets.
control::Task<std::vector<TargetAnswer>> ask_targets(NodeCalls& calls, MoveQuestion question);
// "node-b: reason; node-c: reason" of those that would not take it. Equal reasons are there once.
[[nodiscard]] std::string refusals_text(const std::vector<TargetAnswer>& answers);
// The best suitable place of each node but `except`, at most kMaxAskedTargets.
[[nodiscard]] std::vector<Place> best_of_nodes(const std::vector<Candidate>& candidates,
                                               const std::string& except);

}  // namespace ckpt::coordinator
