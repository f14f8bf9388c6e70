// SPDX-License-Identifier: Apache-2.0
// Takes snapshots after which jobs continue to run, on request and for protection.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors:
// kNotFound; kRefused if the job cannot have a snapshot now; kAborted if its node reports that there is none;
// those of its node.
#pragma once

#include <string>

#include "coordinator/images/image_reports.h"
#include "coordinator/images/image_tasks.h"
#include "coordinator/images/snapshot_orders.h"
#include "coordinator/operations/job_states.h"

namespace ckpt::coordinator {

class Snapshots {
 public:
  struct Dependencies {
    EventLog& events;
    NodeTable& nodes;
    JobTable& jobs;
    const MigrationTable& migrations;
    const JobStates& states;
    const RunningSnapshots& running;
    const ImageReports& reports;
    SnapshotOrders& orders;
    ImageTasks& tasks;
    control::asio::any_io_executor executor;
  };
  explicit Snapshots(Dependencies deps) : deps_(std::move(deps)) {}

  // Begins a snapshot, which then continues in the background. `to` is NODE or a folder; empty: the place of
  // the job's other images.
  control::Task<Result<TaskId>> begin(JobId id, std::string to);
  // Takes a snapshot. Returns once it is recorded in the job. `task` is shown to clients that watch the
  // snapshot; 0: none.
  control::Task<Result<void>> capture(JobId id, Destination to, TaskId task);
  // Waits until no migration of the job is open, no snapshot is being taken, and the job has continued. A job
  // continues shortly after such an operation. Returns kRefused with the obstacle if the wait is too long or
  // does not help.
  control::Task<Result<void>> wait_until_free(JobId id);
  // Returns why the job can have no snapshot now, or an empty string if it can have one.
  [[nodiscard]] std::string why_none(const Job& job) const;
  // Returns why the job can never have a snapshot, as far as known. An empty string means that a snapshot may
  // be possible at some time.
  [[nodiscard]] std::string why_never(const Job& job) const;

 private:
  control::Task<> run_task(JobId id, Destination to, TaskId task);

  Dependencies deps_;
};

}  // namespace ckpt::coordinator
