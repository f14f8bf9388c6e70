// SPDX-License-Identifier: Apache-2.0
// Begins the moves of drains, as many at a time as allowed. The limit counts every open migration out of the
// node, also those of users. A job that cannot be moved now is looked at again whenever jobs, nodes or
// migrations have changed.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors: a
// failed move's reason is in the drain's entry.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "coordinator/gangs/moves/gang_moves.h"
#include "coordinator/maintenance/drain_table.h"
#include "coordinator/operations/moves.h"

namespace ckpt::coordinator {

// A move is given so much time at least, even past the deadline.
inline constexpr std::int64_t kShortestMoveMs = 1'000;

// Why none of the plan's GPUs can take the job: by cause in the entry's reason, each GPU in its obstacles.
// `drained`: whether a place is being drained.
void explain(const MigratePlan& plan, DrainJob& entry, const std::function<bool(const Place&)>& drained);

class DrainMoves {
 public:
  struct Dependencies {
    JobTable& jobs;
    const MigrationTable& migrations;
    const JobStates& states;
    const Planner& planner;
    Moves& moves;
    GangMoves& gang_moves;
    const DrainTable& drains;
    control::asio::any_io_executor executor;
  };
  explicit DrainMoves(Dependencies deps) : deps_(std::move(deps)) {}

  void start(Drain& drain);
  // A migration of its job to that place has come to nothing. `refusal`: why it was refused; empty: it failed, and
  // may be tried there again.
  void note_failure(DrainId id, JobId job, const Place& to, const std::string& refusal);
  void forget(DrainId id) { memory_.erase(id); }

  // A change that may free memory, or make a job movable.
  void on_news() { ++generation_; }
  // A node sent its inventory: memory may be free where there was none.
  void on_inventory() { ++inventories_, ++generation_; }
  // So many jobs are leaving the node now.
  [[nodiscard]] unsigned leaving(const std::string& node) const;

 private:
  // The answer of a job's node to the question whether it can leave. It is asked before the first move where the
  // node has counted obstacles, and after a refusal: a job that no target can take is blocked at once.
  struct SourceAnswer {
    bool is_due = false;
    bool is_asked = false;
    bool is_known = false;
    std::string refusal;
    std::uint64_t at = 0;  // inventories_
  };
  struct Failure {
    Place to;
    std::string refusal;  // empty: it may be tried there again
  };
  // Need not survive: which change each job was last tried at.
  struct Memory {
    std::map<JobId, std::uint64_t> planned_at;   // generation_
    std::map<JobId, std::uint64_t> retry_after;  // inventories_
    std::map<JobId, std::vector<Failure>> failures;
    std::map<JobId, SourceAnswer> answers;
    std::map<JobId, std::string> not_begun;  // by gang: why the last move of its ranks did not begin
  };

  // It was taken in, and stays until that is confirmed; the entry tells it.
  [[nodiscard]] bool leave_unconfirmed(DrainJob& entry) const;
  void move(Drain& drain, DrainJob& entry, const Job& job);
  [[nodiscard]] Result<MigratePlan> plan_for(const Job& job, const std::vector<Failure>& failures) const;
  // True: it cannot leave by the answer of its node, or the node is being asked.
  bool stays_by_its_node(Drain& drain, DrainJob& entry, const Job& job, const Place& to);
  control::Task<> ask_source(DrainId id, JobId job, bool leaves_node);
  bool begin(Drain& drain, DrainJob& entry, const Job& job, const MigratePlan& plan);
  // All ranks of one job that are in the way, together.
  void move_ranks(Drain& drain, JobId gang, const std::vector<DrainJob*>& entries);

  Dependencies deps_;
  std::map<DrainId, Memory> memory_;
  std::uint64_t generation_ = 1;
  std::uint64_t inventories_ = 1;
};

}  // namespace ckpt::coordinator
