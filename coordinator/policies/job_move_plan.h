// SPDX-License-Identifier: Apache-2.0
// Moves of a job as policies see them: which ranks move together, their targets, and how a move ended. Plain
// values and pure functions.
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
  std::vector<std::uint32_t> moved;  // the numbers of the ranks that move
  std::vector<Place> places;  // the new place of each rank of `moved`; empty if the move is not possible
  std::string reason;         // the reason why the move is not possible
  std::string obstacle;       // the reason why the move is not possible, if the job itself is the cause and
                              // not the GPUs; otherwise empty
  bool passing = false;       // the obstacle may pass once a job ends or starts, or a node reconnects
  bool no_gpu = false;        // no candidate is suitable
  std::vector<Candidate> candidates;
  wire::Communicators communicators = wire::Communicators::kOverlap;  // when the communicators are made
  // how the move treats connections to other programs
  wire::Connections connections = wire::Connections::kRefuse;
  std::vector<std::string> warnings;  // the warnings of a dry run

  [[nodiscard]] bool is_possible() const { return !places.empty(); }
};

// Returns the plan as not possible, with the nodes' refusals as the reason.
[[nodiscard]] inline JobMovePlan as_refused(JobMovePlan plan, std::string refusals) {
  plan.reason = std::move(refusals);
  plan.no_gpu = plan.passing = false;
  return plan;
}

// Returns how the migration ended, with its error: "m3 failed: the link is gone".
[[nodiscard]] inline std::string outcome_text(const Migration& migration) {
  return migration_text(migration.id) + " " + std::string(to_string(migration.result)) +
         (migration.error.empty() ? "" : ": " + migration.error);
}

}  // namespace ckpt::coordinator
