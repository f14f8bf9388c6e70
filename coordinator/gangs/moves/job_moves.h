// SPDX-License-Identifier: Apache-2.0
// Moves a job of any number of ranks: one rank by a handover of its own (Moves), or several by a common move
// (GangMoves). Users of this class need not distinguish the two.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors: those
// of Moves and GangMoves.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/fleet/expected_pause.h"
#include "coordinator/gangs/moves/gang_moves.h"
#include "coordinator/operations/moves.h"
#include "coordinator/policies/job_move_plan.h"

namespace ckpt::coordinator {

class JobMoves {
 public:
  struct Dependencies {
    const NodeTable& nodes;
    JobTable& jobs;
    const JobStates& states;
    const Planner& planner;
    Moves& moves;
    GangMoves& gang_moves;
  };
  explicit JobMoves(Dependencies deps) : deps_(deps) {}

  // Returns true while a move of the rank's job is being prepared.
  [[nodiscard]] bool is_preparing(const Job& rank) const;
  // Returns the reason why the job cannot be moved now, or an empty string if the coordinator's records
  // contain none.
  [[nodiscard]] std::string why_not_movable(const Job& rank) const;
  // Returns the reason why migrate() would be refused for this job, or for this rank as a job of its own.
  [[nodiscard]] std::string why_not_movable(const WholeJob& job) const;

  // Plans a move of these ranks of one job, which leave their GPUs together. Changes nothing.
  [[nodiscard]] Result<JobMovePlan> plan(const std::vector<JobId>& ranks, const PlanHints& hints) const;
  // Begins the planned move. Returns null if the move is being prepared: then either its migrations appear in
  // the table soon, or `failed` is called.
  Result<const Migration*> begin(const std::vector<JobId>& ranks, MigrateRequest request,
                                 const PlanHints& hints, const JobMovePlan& plan,
                                 std::function<void(const Error&)> failed);
  // Returns how long the move is expected to pause the job, or nullopt if that is not known.
  [[nodiscard]] std::optional<ExpectedPause> pause_of(const Job& rank, const Place& to) const;
  // Returns the longest of the pauses that are expected for the plan's ranks, or nullopt if one of them is
  // not known.
  [[nodiscard]] std::optional<ExpectedPause> pause_of(const WholeJob& job, const JobMovePlan& plan) const;

  // Plans the move that a user requests, and queries the nodes whether they would begin it. Changes nothing.
  // A refusal of a node is the plan's reason.
  control::Task<Result<JobMovePlan>> dry_run(JobId whole, MigrateRequest request);
  // Begins the move that a user requests. Waits up to a limit until the move is possible. Returns the
  // migration of the first rank that moves.
  control::Task<Result<const Migration*>> migrate(JobId whole, MigrateRequest request);
  // Returns the open migration of the first rank that moves, or null if there is none.
  [[nodiscard]] const Migration* open_of(const WholeJob& job) const;
  // Returns the obstacles to a move of this rank, as Moves::obstacles() does.
  control::Task<Result<MoveObstacles>> obstacles(JobId rank) { return deps_.moves.obstacles(rank); }

  // Returns false if only the preparation of the move queries the nodes. The caller then does not call ask().
  [[nodiscard]] bool queries_nodes(const Job& rank) const;
  // Queries the nodes as Moves::ask() does.
  control::Task<Result<std::vector<TargetAnswer>>> ask(JobId rank, std::vector<Place> targets);
  // Queries the node as Moves::check_source() does. A node that the preparation of a move will query is not
  // queried here, and counts as willing.
  control::Task<Result<void>> check_source(JobId whole, bool leaves_node);
  // Cancels the parking of the job if the plan has a place for the job.
  bool give_up_parking(const Job& rank, const JobMovePlan& plan, const std::string& reason);
  bool give_up_parking(const Job& rank, const std::string& reason) {
    return deps_.moves.give_up_parking(rank, reason);
  }

 private:
  [[nodiscard]] const Job& rank_of(JobId id) const { return *deps_.jobs.find(id); }
  [[nodiscard]] std::vector<std::uint32_t> numbers_of(const std::vector<JobId>& ranks) const;
  [[nodiscard]] Result<JobMovePlan> plan_together(const std::vector<JobId>& ranks,
                                                  const PlanHints& hints) const;

  Dependencies deps_;
};

}  // namespace ckpt::coordinator
