// SPDX-License-Identifier: Apache-2.0
// Queries the nodes of both sides whether a move would begin: the job's own node first, then all targets at
// once. Dry runs and displays of a job use this. Nothing is changed.
// Threads: one io_context on one thread. Ownership: borrows `calls`. Errors: each target's answer has its own
// error: kRefused or kNotSupported if a node would not take part. A node that does not answer counts as not
// queried, which is not a positive answer.
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
// The most targets of one job that are queried at once.
inline constexpr std::size_t kMaxAskedTargets = 8;

struct MoveQuestion {
  struct Target {
    Place place;
    Result<SharedNetwork> network;    // the network shared with the job's node
    bool resets_connections = false;  // false if the target's agent is older (node.h)
  };
  wire::JobSpec spec;
  wire::Incarnation incarnation = 0;  // the incarnation as which the job runs
  Place from;
  std::vector<Target> targets;
};

struct TargetAnswer {
  Place place;
  Result<void> acceptance = ok();
  bool is_of_source = false;            // true if the job's own node refused, or did not answer
  std::uint64_t ended_connections = 0;  // the connections to other programs that the move would end
};

// Queries the targets. The answers are in the order of the targets.
control::Task<std::vector<TargetAnswer>> ask_targets(NodeCalls& calls, MoveQuestion question);
// Returns the refusals as text: "node-b: reason; node-c: reason" for the targets that would refuse the job.
// Each reason is listed once.
[[nodiscard]] std::string refusals_text(const std::vector<TargetAnswer>& answers);
// Returns the best suitable place of each node except `except`, at most kMaxAskedTargets.
[[nodiscard]] std::vector<Place> best_of_nodes(const std::vector<Candidate>& candidates,
                                               const std::string& except);

}  // namespace ckpt::coordinator
