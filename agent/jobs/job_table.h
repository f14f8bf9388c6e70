// SPDX-License-Identifier: Apache-2.0
// All instances of jobs on this node. Their key is the job, the incarnation they were started with, and the
// migration that started them (0: none).
// Threads: the event loop. Ownership: the table owns the instances. Errors: start() returns the reason why an
// instance could not be started. A failed start leaves nothing behind.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "agent/io/waiters.h"
#include "agent/jobs/job.h"

namespace ckpt::agent {

class JobTable {
 public:
  explicit JobTable(const JobEnvironment& environment) : environment_(environment) {}

  // Finds every instance that an earlier agent left. Call this function at the agent's start.
  Task<Result<void>> rediscover();
  // A function that checks and completes the record of an instance that is about to start.
  using Prepare = std::function<Task<Result<void>>(JobRecord&)>;
  // Starts an instance. If an instance of the same order already exists, the function returns that instance,
  // so a repeated order starts nothing. The instance is reserved before the first wait: `prepare` runs once,
  // and stop() waits for the start. The error is kRefused if another job's instance has the id. The error is
  // kUnavailable if another instance of the job stays unknown.
  Task<Result<std::shared_ptr<Job>>> start(JobRecord record, std::optional<HostRestore> restore = {},
                                           Prepare prepare = {});

  // Returns the living instance that runs as `incarnation`, or null.
  [[nodiscard]] std::shared_ptr<Job> running_as(wire::JobId job, wire::Incarnation incarnation) const;
  // Returns the instance that was started as `incarnation`, living or not, or null. The function prefers the
  // newest of several standbys.
  [[nodiscard]] std::shared_ptr<Job> started_as(wire::JobId job, wire::Incarnation incarnation) const;
  // Returns the standby that `migration` started as `incarnation`, living or not, or null.
  [[nodiscard]] std::shared_ptr<Job> started_by(wire::MigrationId migration, wire::JobId job,
                                                wire::Incarnation incarnation) const;
  [[nodiscard]] std::vector<std::shared_ptr<Job>> all() const;
  // Checks whether a later migration has started a standby as the same incarnation. The older instance is
  // being terminated, and only its own migration still receives reports about it.
  [[nodiscard]] bool superseded(const Job& job) const;

  // Sends SIGTERM, and SIGKILL after the grace, to every instance of the job up to `incarnation`. The
  // function waits at most 8 s for an instance that is being started. The error is then kUnavailable, and the
  // other instances are stopped. kNotFound means that there is no instance.
  Task<Result<void>> stop(wire::JobId job, wire::Incarnation incarnation, Milliseconds grace);
  // Kills the remaining processes of an instance. Removes the instance from the table and its folder from the
  // disk.
  Task<> remove(std::shared_ptr<Job> job);
  // Removes the ended instances of a job.
  Task<> forget(wire::JobId job);

 private:
  using Key = std::tuple<wire::JobId, wire::Incarnation, wire::MigrationId>;
  static Key key_of(const Job& job);
  // Starts the instance, whose key is reserved.
  Task<Result<std::shared_ptr<Job>>> start_reserved(JobRecord record, std::optional<HostRestore> restore,
                                                    Prepare prepare);
  Task<> wait_for_unknown(wire::JobId job);
  Task<Result<void>> wait_for_starts(wire::JobId job, wire::Incarnation incarnation);
  // Starts to record the times of the instance's output (log_times.h).
  void watch_log(const std::shared_ptr<Job>& job);
  [[nodiscard]] Result<void> check_none_unknown(wire::JobId job) const;
  const JobEnvironment& environment_;
  std::map<Key, std::shared_ptr<Job>> jobs_;
  std::map<Key, std::shared_ptr<Waiters>>
      starting_;  // reserved instances, with the requests that wait for the start of each
};

}  // namespace ckpt::agent
