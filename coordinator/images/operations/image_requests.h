// SPDX-License-Identifier: Apache-2.0
// Requests for operations on a job's images. Each finds the image and the place, and checks whether the
// operation is permitted. A function that returns a task has begun the operation, which continues in the
// background (operation_runner.h).
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

  // These functions are the interface for other parts of the coordinator.
  [[nodiscard]] std::optional<Image> newest(JobId job) const override { return deps_.finder.newest(job); }
  control::Task<Result<Restored>> restore(JobId job, std::optional<Place> to, std::string reason) override;
  control::Task<Result<void>> park(JobId job, bool snapshot, std::string reason) override;

  // These functions handle requests of users.
  control::Task<Result<TaskId>> begin_suspend(JobId id, std::string to);
  control::Task<Result<TaskId>> begin_restore(JobId id, RestoreWish wish);
  // Restores, from `wish.image`, a job that is no longer known. The result is a new job with the same name.
  control::Task<Result<TaskId>> begin_revival(RestoreWish wish);
  // These functions return the plans of begin_restore() and begin_revival(). Nothing changes.
  control::Task<Result<RestorePlan>> dry_restore(JobId id, RestoreWish wish);
  control::Task<Result<RestorePlan>> dry_revival(RestoreWish wish);

  // Resumes a parked job automatically. Returns once the job runs, or is parked again. `claims` is memory
  // that is reserved for other jobs.
  control::Task<Result<void>> resume(JobId id, PlanHints claims);

 private:
  control::Task<Result<TaskId>> begin_parking(JobId id, Destination to, ImageOperation operation);
  Result<TaskId> start_parking(JobId id, ImageOperation operation);
  control::Task<Result<ImageTask>> outcome_of(TaskId task, std::string what);

  Dependencies deps_;
};

}  // namespace ckpt::coordinator
