// SPDX-License-Identifier: Apache-2.0
// All instances of jobs on this node, by job, the incarnation they were started with, and the migration that
// started them (0: none). Threads: the event loop. Ownership: owns the instances. Errors: start() gives the
// reason why an instance could not be started; nothing of it is left then.
#pragma once

#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "agent/jobs/job.h"

namespace ckpt::agent {

class JobTable {
 public:
  explicit JobTable(const JobEnvironment& environment) : environment_(environment) {}

  // Finds every instance that an earlier agent left. Called at start.
  Task<Result<void>> rediscover();
  // Starts an instance; one that is there already and was started by the same specification is returned as it
  // is (a repeated request starts nothing). kRefused if another job's instance has that id, kUnavailable if
  // another one of the job stays unknown.
  Task<Result<std::shared_ptr<Job>>> start(JobRecord record, std::optional<HostRestore> restore = {});

  // The living instance that runs as that incarnation, or null.
  [[nodiscard]] std::shared_ptr<Job> running_as(wire::JobId job, wire::Incarnation incarnation) const;
  // The instance that was started as that incarnation, living or not, or null; of several standbys the
  // newest.
  [[nodiscard]] std::shared_ptr<Job> started_as(wire::JobId job, wire::Incarnation incarnation) const;
  // The standby that a migration started as that incarnation, living or not, or null.
  [[nodiscard]] std::shared_ptr<Job> started_by(wire::MigrationId migration, wire::JobId job,
                                                wire::Incarnation incarnation) const;
  [[nodiscard]] std::vector<std::shared_ptr<Job>> all() const;
  // A later migration has started a standby as the same incarnation: this one is ending, and is reported to
  // no one else.
  [[nodiscard]] bool superseded(const Job& job) const;

  // SIGTERM, after the grace SIGKILL, to every instance of the job up to that incarnation; one that is being
  // started is waited for, at most 8 s: kUnavailable then, and the others are stopped. kNotFound if there is
  // none.
  Task<Result<void>> stop(wire::JobId job, wire::Incarnation incarnation, Milliseconds grace);
  // Removes an instance from the table and its folder from the disk, ending the rest of it.
  Task<> remove(std::shared_ptr<Job> job);
  // Removes the ended instances of a job.
  Task<> forget(wire::JobId job);

 private:
  using Key = std::tuple<wire::JobId, wire::Incarnation, wire::MigrationId>;
  static Key key_of(const Job& job);
  Task<> wait_for_unknown(wire::JobId job);
  Task<Result<void>> wait_for_starts(wire::JobId job, wire::Incarnation incarnation);
  // Times of its output are kept from now on (log_times.h).
  void watch_log(const std::shared_ptr<Job>& job);
  [[nodiscard]] Result<void> check_none_unknown(wire::JobId job) const;
  const JobEnvironment& environment_;
  std::map<Key, std::shared_ptr<Job>> jobs_;
  std::map<Key, std::list<Signal*>>
      starting_;  // requests that wait for an earlier request for the same instance
};

}  // namespace ckpt::agent
