// SPDX-License-Identifier: Apache-2.0
// Takes snapshots that jobs run on after, by order and for protection.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors:
// kNotFound, kRefused: the job cannot have one now; kAborted: its node reports that there is none; those of
// its node.
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

  // Has begun when it returns, and goes on by itself. `to`: NODE or folder; empty: where its other images
  // are.
  control::Task<Result<TaskId>> begin(JobId id, std::string to);
  // Returns once it is recorded in the job. `task`: for clients that watch; 0: none.
  control::Task<Result<void>> take(JobId id, Destination to, TaskId task);
  // Until no migration of it is open and no snapshot is being taken. Whatever has paused it lets it go on a
  // moment after it is over.
  control::Task<Result<void>> wait_until_free(JobId id);
  // Empty, or why it can have none now.
  [[nodiscard]] std::string why_none(const Job& job) const;
  [[nodiscard]] bool lacks_context(const Job& job) const { return deps_.states.lacks_context(job); }

 private:
  control::Task<> run_task(JobId id, Destination to, TaskId task);

  Dependencies deps_;
};

}  // namespace ckpt::coordinator
