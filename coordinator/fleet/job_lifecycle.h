// SPDX-License-Identifier: Apache-2.0
// The lifecycle of jobs: how they start, run, are stopped and end. Decided from agents' inventories, requests
// and the outcomes of migrations.
//
// While a migration of a job, or an operation on its images, is open, that alone judges the events of its
// instances. The end of an instance ends the job only once it is closed.
// Threads: one io_context on one thread. Ownership: borrows the tables, which outlive it. Errors: those of
// the store for request_stop(); later ones are logged.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/fleet/jobs.h"
#include "coordinator/fleet/migration_queries.h"
#include "coordinator/state/event_log.h"
#include "libckpt/protocol/wire/job_messages.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::coordinator {

class JobLifecycle {
 public:
  JobLifecycle(JobTable& table, EventLog& events, const MigrationQueries& migrations)
      : table_(table), events_(events), migrations_(migrations) {}

  void on_started(Job& job);
  void on_start_failed(Job& job, const Error& reason);

  // Takes in all instances of a node. Running jobs that are missing are lost. Returns starting ones that are
  // missing, to be started again (StartJob is idempotent).
  std::vector<JobId> on_inventory(const Node& node);
  void on_instance(const Node& node, const wire::JobInstance& instance);
  // Judges the job's current instance again, after a migration or an operation was closed.
  void judge_again(JobId id, const Node* node);

  // The command of what goes on as the job, and from which its next standby is started.
  void program_is(JobId id, const std::vector<std::string>& argv);
  // The job continues as incarnation k of the instance `segment`, with these ranks.
  void runs_at(JobId id, Incarnation k, const Segment& segment, const std::vector<JobRank>& ranks,
               const Node* node);
  void set_downtime(JobId id, double downtime_ms, std::optional<wire::PauseFacts> pause);

  // Durable before it counts.
  Result<void> request_stop(Job& job, std::int64_t grace_ms);
  // Nothing of a parked job runs: it ends at once. `silent_node`: that may have started it and is away; then
  // how it ends is not known.
  void stop_parked(Job& job, const std::string& silent_node);

  // Its node was removed. `unfenced`: an instance may still run there.
  void lose(JobId id, bool unfenced);
  // Its node reports that it continued elsewhere, and no node has it.
  void lose_left(JobId id);
  // A lost job runs on at a node that was removed from the cluster.
  void runs_unmanaged(JobId id, const std::string& node, Incarnation incarnation);
  // It was not parked. If its instance has left for its image all the same, it ends here: as `stopped`, else
  // it is lost.
  void not_parked(JobId id, const Node* node, bool stopped);

  // JobTable::remove_old() without jobs that a migration or an operation is open for.
  std::vector<JobId> forget_old(const Retention& keep);
  // Removes one by request. kRefused with the reason unless nothing of it lives any more.
  Result<void> forget(const Job& job);

 private:
  [[nodiscard]] bool judged_elsewhere(const Job& job) const {
    return job.operation.has_value() || migrations_.has_open(job.id);
  }
  void judge(Job& job, const wire::JobInstance& instance);
  void end(Job& job, JobState state, int exit_code, std::string reason);

  JobTable& table_;
  EventLog& events_;
  const MigrationQueries& migrations_;
};

}  // namespace ckpt::coordinator
