// SPDX-License-Identifier: Apache-2.0
// Gives up operations on images: for a stop, for a move, for another order.
// Threads: one io_context on one thread. Ownership: borrows its parts, which outlive it. Errors: kRefused: it
// cannot be given up now; kTimedOut; those of the store.
#pragma once

#include <string>

#include "coordinator/images/operations/operation_records.h"
#include "coordinator/images/snapshot_orders.h"
#include "coordinator/operations/image_work.h"

namespace ckpt::coordinator {

class OperationCancels : public ImageWork {
 public:
  struct Parts {
    const NodeTable& nodes;
    JobTable& jobs;
    SnapshotOrders& snapshots;
    const OpenOperations& open;
    OperationRecords& records;
  };
  explicit OperationCancels(Parts parts) : parts_(parts) {}

  bool give_up_parking(JobId id, const std::string& why) override;
  Result<bool> stop_operation(JobId id, std::int64_t grace_ms) override;
  // A job that is to go on from an image rests in it instead. Nothing for one whose instance runs already.
  Result<void> give_up_start(JobId id, const std::string& why);
  // Returns once the job is out of the operation.
  control::Task<Result<void>> cancel_parking(JobId id, std::string why);

 private:
  void tell_given_up(JobId id);

  Parts parts_;
};

}  // namespace ckpt::coordinator
