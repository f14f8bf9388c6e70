// SPDX-License-Identifier: Apache-2.0
// Begins the moves of drains, as many at a time as allowed. The limit counts every open migration out of the
// node, also those of users. Which jobs are tried is decided by DrainTries (policies/drain/drain_tries.h).
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors: a
// failed move's reason is in the drain's entry.
#pragma once

#include <map>
#include <string>

#include "coordinator/gangs/moves/job_moves.h"
#include "coordinator/maintenance/drain_table.h"
#include "coordinator/policies/drain/drain_tries.h"

namespace ckpt::coordinator {

// The DrainView over the coordinator's tables.
class LiveDrainView final : public DrainView {
 public:
  LiveDrainView(JobTable& jobs, const MigrationTable& migrations) : jobs_(jobs), migrations_(migrations) {}
  [[nodiscard]] std::vector<const Job*> live() const override;
  [[nodiscard]] const Job* job(JobId id) const override { return jobs_.find(id); }
  [[nodiscard]] const Migration* open_of(JobId job) const override { return migrations_.open_of(job); }
  [[nodiscard]] const Migration* migration(MigrationId id) const override { return migrations_.find(id); }

 private:
  JobTable& jobs_;
  const MigrationTable& migrations_;
};

class DrainMoves {
 public:
  struct Dependencies {
    JobTable& jobs;
    const MigrationTable& migrations;
    JobMoves& moves;
    const DrainTable& drains;
    control::asio::any_io_executor executor;
  };
  explicit DrainMoves(Dependencies deps) : deps_(std::move(deps)), view_(deps_.jobs, deps_.migrations) {}

  void start(Drain& drain);
  void note_failures(DrainId id, const std::vector<FailedMove>& failed);
  void forget(DrainId id) { tries_.erase(id); }

  // Records a change that may free memory, or make a job movable.
  void on_news() { ++news_.changes; }
  // Records that a node has sent its inventory, so that more memory may be free.
  void on_inventory() { ++news_.inventories, ++news_.changes; }
  // Returns the number of jobs that are leaving the node now.
  [[nodiscard]] unsigned leaving(const std::string& node) const;
  [[nodiscard]] const DrainView& view() const { return view_; }

 private:
  void try_group(Drain& drain, const DrainGroup& group);
  [[nodiscard]] GroupNow now_of(const Drain& drain, const DrainGroup& group) const;
  // Plans a move. `hints` receives the places that the plan avoids.
  [[nodiscard]] Result<JobMovePlan> plan_for(DrainId id, const DrainGroup& group, PlanHints& hints) const;
  [[nodiscard]] SourceFacts source_of(const DrainGroup& group, const Result<JobMovePlan>& plan) const;
  void begin(const Drain& drain, const DrainGroup& group, const JobMovePlan& plan, const PlanHints& hints);
  control::Task<> ask_source(DrainId id, JobId job, bool leaves_node);
  void on_not_begun(DrainId id, JobId job, const Error& error);

  Dependencies deps_;
  LiveDrainView view_;
  std::map<DrainId, DrainTries> tries_;
  DrainNews news_;
};

}  // namespace ckpt::coordinator
