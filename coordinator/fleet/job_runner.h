// SPDX-License-Identifier: Apache-2.0
// Runs the state machine of each job (lifecycle/job_machine.h). It gathers the job's ranks, makes the step
// and stores the changed rows in one write. Then it puts the rows into the table, and performs the actions.
//
// An order takes effect once it is stored. Otherwise it is refused and nothing has changed. A fact has
// already happened, so it takes effect at once. A fact that the store refuses is stored again
// (JobTable::store_unsaved), and the rules among ranks wait until then.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors:
// order() returns those of the machine and the store; those of facts are logged.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "coordinator/fleet/jobs.h"
#include "coordinator/lifecycle/job_machine.h"
#include "coordinator/lifecycle/run_steps.h"
#include "coordinator/state/event_log.h"
#include "coordinator/state/listeners.h"

namespace ckpt::coordinator {

// The listeners that perform the actions of jobs.
using JobActions = Listeners<JobId, const lifecycle::JobAction&>;

class JobRunner {
 public:
  JobRunner(JobTable& jobs, EventLog& events, const lifecycle::JobView& view)
      : jobs_(jobs), events_(events), view_(view) {}
  JobRunner(const JobRunner&) = delete;
  JobRunner& operator=(const JobRunner&) = delete;

  Result<void> order(JobId id, lifecycle::JobEvent event);
  void fact(JobId id, lifecycle::JobEvent event);
  struct Event {
    JobId job = 0;
    lifecycle::JobEvent event;
  };
  // Applies events of several ranks of one job: all of them or none.
  Result<void> order_all(std::vector<Event> events);
  // Applies the rules among the ranks of a job, after they had to wait.
  void settle(JobId id);

  // Processes the whole list of instances of a node. Running jobs whose instances are missing become lost.
  // Returns the missing jobs that were starting, so that they are started again (StartJob is idempotent).
  std::vector<JobId> on_inventory(const Node& node);
  void on_instance(const Node& node, const wire::JobInstance& instance);
  // Applies the last report of the job's own instance again. Call this when a migration of the job was
  // closed, or has started the job on that node. `node` is null if the job's node is not known.
  void reevaluate(JobId id, const Node* node);

  // Calls JobTable::remove_old(), but keeps jobs with an open migration or operation, and jobs that may still
  // run on a node.
  std::vector<JobId> prune(const Retention& retention);
  // Removes ranks on request, all or none. Returns kRefused with the reason while any instance of one of them
  // may still run.
  Result<void> forget(const std::vector<Job*>& ranks);

  // Returns the listeners of actions. acted() reports each action except entries of the event log. Then
  // stepped() reports each job that a step has changed.
  [[nodiscard]] JobActions& acted() { return acted_; }
  [[nodiscard]] Listeners<JobId>& stepped() { return stepped_; }

 private:
  enum class Kind : std::uint8_t { kOrder, kFact };
  [[nodiscard]] std::vector<const Job*> ranks_with(const Job& job) const;
  // Applies the events in one step of the state machine. Returns the jobs whose rows have changed.
  Result<std::vector<JobId>> run(JobId id, std::vector<Event> events, Kind kind);
  // Makes a step for the events. On success the changed rows are stored and in the table.
  Result<lifecycle::Step> make(const std::vector<const Job*>& ranks,
                               std::span<const lifecycle::RankEvent> events, Kind kind);
  [[nodiscard]] Result<void> check_stored(const std::vector<const Job*>& ranks);
  void perform(const std::vector<std::pair<JobId, lifecycle::JobAction>>& actions);
  void admit_instance(Job& job, const wire::JobInstance& instance);
  // Logs a warning, unless it equals the job's previous warning.
  void warn(JobId id, const std::string& text);

  JobTable& jobs_;
  EventLog& events_;
  const lifecycle::JobView& view_;
  std::map<JobId, std::string> warned_;  // the last warning of each job; removed with the job
  JobActions acted_;
  Listeners<JobId> stepped_;
};

}  // namespace ckpt::coordinator
