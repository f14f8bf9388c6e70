// SPDX-License-Identifier: Apache-2.0
// Cancels the snapshots of jobs that are being parked: for a stop, a move, or another order.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors:
// kRefused if a snapshot cannot be canceled now; kTimedOut; those of the store.
#pragma once

#include <string>

#include "coordinator/fleet/job_runner.h"
#include "coordinator/images/snapshot_orders.h"
#include "coordinator/operations/image_work.h"

namespace ckpt::coordinator {

class OperationCancels : public ImageWork {
 public:
  struct Dependencies {
    JobTable& jobs;
    JobRunner& job_runner;
    SnapshotOrders& snapshots;
  };
  explicit OperationCancels(Dependencies deps);
  OperationCancels(const OperationCancels&) = delete;
  OperationCancels& operator=(const OperationCancels&) = delete;

  bool give_up_parking(JobId id, const std::string& reason) override;
  // Cancels the parking of the job. Returns once the operation on the job has ended.
  control::Task<Result<void>> cancel_parking(JobId id, std::string reason);

 private:
  Dependencies deps_;
};

}  // namespace ckpt::coordinator
