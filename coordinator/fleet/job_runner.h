// SPDX-License-Identifier: Apache-2.0
// Runs the machine of each job (lifecycle/job_machine.h). It gathers the job's ranks, makes the step and stores its rows in
// one write. Then it puts them into the table, and performs the actions.
//
// An order counts once it is stored, or it is refused and nothing has changed. A fact has happened: it counts at once, and
// what the store refuses is stored again (JobTable::store_unsaved). The rules among ranks wait until then.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors:
// order() returns the machine's and the store's; those of facts are logged.
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

// Actions of jobs, for those who perform them.
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
  // Events of several ranks of one job: all of them or none.
  Result<void> order_all(std::vector<Event> events);
  // The rules among the ranks of a job, where they had to wait.
  void settle(JobId id);

  // Takes in all instances of a node. Running jobs that are missing are lost. Returns starting ones that are
  // missing, to be started again (StartJob is idempotent).
  std::vector<JobId> on_inventory(const Node& node);
  void on_instance(const Node& node, const wire::JobInstance& instance);
  // The last report of the job's own instance counts again: a migration of it was closed, or has it run there. Null: its
  // node is not known.
  void reevaluate(JobId id, const Node* node);

  // JobTable::remove_old() without jobs that a migration or an operation is open for, or that may live somewhere.
  std::vector<JobId> prune(const Retention& keep);
  // Removes one by request. kRefused with the reason unless nothing of it lives any more.
  Result<void> forget(const Job& job);

  // Each action but entries of the event log; then each job that a step has changed.
  [[nodiscard]] JobActions& acted() { return acted_; }
  [[nodiscard]] Listeners<JobId>& stepped() { return stepped_; }

 private:
  enum class Kind : std::uint8_t { kOrder, kFact };
  [[nodiscard]] std::vector<const Job*> ranks_with(const Job& job) const;
  // Returns the jobs whose rows have changed.
  Result<std::vector<JobId>> run(JobId id, std::vector<Event> events, Kind kind);
  // Stored and in the table, or an error.
  Result<lifecycle::Step> make(const std::vector<const Job*>& ranks,
                               std::span<const lifecycle::RankEvent> events, Kind kind);
  [[nodiscard]] Result<void> check_stored(const std::vector<const Job*>& ranks);
  void perform(const std::vector<std::pair<JobId, lifecycle::JobAction>>& actions);
  void take_in(Job& job, const wire::JobInstance& instance);
  // Logs a warning once, until the job has another one.
  void warn(JobId id, const std::string& text);

  JobTable& jobs_;
  EventLog& events_;
  const lifecycle::JobView& view_;
  std::map<JobId, std::string> warned_;  // the last warning of each job; it goes with the job
  JobActions acted_;
  Listeners<JobId> stepped_;
};

}  // namespace ckpt::coordinator
