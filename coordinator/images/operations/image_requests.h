// SPDX-License-Identifier: Apache-2.0
// Requests for operations on a job's images: they find image and place, and check that it may be. Those that
// return a task have begun the operation, which goes on by itself (operation_runner.h).
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors: those
// of Images; kInvalidArgument.
#pragma once

#include <optional>
#include <string>

#include "coordinator/fleet/job_admission.h"
#include "coordinator/images/operations/operation_cancels.h"
#include "coordinator/images/operations/operation_runner.h"
#include "coordinator/images/operations/restore_plans.h"
#include "coordinator/images/snapshots.h"

namespace ckpt::coordinator {

class ImageRequests : public Images {
 public:
  struct Dependencies {
    NodeTable& nodes;
    JobTable& jobs;
    JobRunner& job_runner;
    const lifecycle::JobView& view;
    JobAdmission& admission;
    RestorePlans& restores;
    const ImageCatalog& catalog;
    const ImageFinder& finder;
    ImageTasks& tasks;
    Snapshots& snapshots;
    SnapshotOrders& orders;
    const OpenOperations& open;
    OperationRunner& runner;
    OperationCancels& cancels;
  };
  explicit ImageRequests(Dependencies deps) : deps_(deps) {}

  // The port for other parts of the coordinator.
  [[nodiscard]] std::optional<Image> newest(JobId job) const override { return deps_.finder.newest(job); }
  control::Task<Result<Restored>> restore(JobId job, std::optional<Place> to, std::string reason) override;
  control::Task<Result<void>> park(JobId job, bool snapshot, std::string reason) override;

  // Requests of users.
  control::Task<Result<TaskId>> begin_suspend(JobId id, std::string to);
  control::Task<Result<TaskId>> begin_restore(JobId id, RestoreWish wish);
  // Restores a job that is not known any more from `wish.image`, as a new job, which takes its name.
  control::Task<Result<TaskId>> begin_revival(RestoreWish wish);
  // The plans that the two requests above would carry out; nothing changes.
  control::Task<Result<RestorePlan>> dry_restore(JobId id, RestoreWish wish);
  control::Task<Result<RestorePlan>> dry_revival(RestoreWish wish);

  // A parked job comes back by itself: returns once it runs, or rests again. `claims`: memory that is spoken
  // for.
  control::Task<Result<void>> resume(JobId id, PlanHints claims);

 private:
  control::Task<Result<TaskId>> begin_parking(JobId id, Destination to, ImageOperation operation);
  Result<TaskId> begin_resting(JobId id, ImageOperation operation);
  control::Task<Result<ImageTask>> outcome_of(TaskId task, std::string what);

  Dependencies deps_;
};

}  // namespace ckpt::coordinator
