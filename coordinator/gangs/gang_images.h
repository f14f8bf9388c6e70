// SPDX-License-Identifier: Apache-2.0
// Images of gangs on request: `snapshot`, after which the ranks continue, and `suspend`, after which the gang
// is parked in its images. A set is valid once all of its images are durable. A failed set is removed.
//
// One record of all ranks decides a suspension. Before that record every rank is paused with its image
// durable, and continues if the record is not made. After the record each rank's instance is ended, whatever
// its state (operation_runner.h).
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors:
// kNotFound; kRefused if it is not possible now, with the reason; those of GangSnapshot.
#pragma once

#include <string>
#include <vector>

#include "coordinator/gangs/gang_snapshot.h"
#include "coordinator/images/image_numbers.h"
#include "coordinator/images/image_reports.h"
#include "coordinator/images/operations/operation_runner.h"
#include "coordinator/images/snapshots.h"

namespace ckpt::coordinator {

class GangImages {
 public:
  struct Dependencies {
    EventLog& events;
    NodeTable& nodes;
    NodeCalls& calls;
    JobTable& jobs;
    const ImageCatalog& catalog;
    ImageNumbers& numbers;
    ImageReports& reports;
    ImageTasks& tasks;
    RunningSnapshots& running;
    SnapshotOrders& orders;
    Snapshots& snapshots;
    OperationRunner& runner;
    control::asio::any_io_executor executor;
  };
  explicit GangImages(Dependencies deps);

  // Each of these functions begins an operation, which then continues in the background. `to` has the same
  // form as in Snapshots::begin.
  control::Task<Result<TaskId>> begin_snapshot(JobId gang, std::string to);
  control::Task<Result<TaskId>> begin_suspend(JobId gang, std::string to);
  // Takes a set of images. Returns once the set is durable and recorded in the ranks. `task` is shown to
  // clients that watch the snapshot; 0: none.
  control::Task<Result<GangSet>> snapshot(JobId gang, Destination to, TaskId task);
  // Returns why no images of the gang can be taken now, or an empty string if they can be taken.
  [[nodiscard]] std::string why_none(const WholeJob& gang) const;
  // Returns why no images of the gang can ever be taken. An empty string means that images may be possible at
  // some time.
  [[nodiscard]] static std::string why_never(const WholeJob& gang);

 private:
  using Captured = std::pair<std::shared_ptr<GangSnapshot>, GangSet>;
  control::Task<Result<Captured>> capture(JobId gang, Destination to, bool holds, TaskId task);
  control::Task<Result<void>> wait_until_free(JobId gang);
  control::Task<> run_snapshot(JobId gang, Destination to, TaskId task);
  control::Task<> run_suspend(JobId gang, Destination to, TaskId task);
  control::Task<Result<GangSet>> suspend(JobId gang, Destination to, TaskId task);
  control::Task<Result<void>> wait_until_parked(JobId gang);
  Result<GangSet> record(const GangSnapshot& captured, std::uint64_t set, const Destination& to, TaskId task);
  control::Task<> remove_set(JobId gang, std::uint64_t number);
  control::Task<> release(std::string node, wire::SnapshotReport report);
  void fail(JobId gang, TaskId task, const std::string& verb, const Error& error);

  Dependencies deps_;
};

}  // namespace ckpt::coordinator
