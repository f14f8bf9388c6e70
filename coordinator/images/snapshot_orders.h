// SPDX-License-Identifier: Apache-2.0
// Orders a snapshot from the node where the job runs, and cancels one. The snapshot is stored in that node's
// own checkpoint store, another node's, or a folder.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors: those
// of the nodes; kUnavailable for a snapshot that was canceled before it was ordered.
#pragma once

#include <chrono>

#include "coordinator/fleet/jobs.h"
#include "coordinator/fleet/running_snapshots.h"
#include "coordinator/images/checkpoint_store_grants.h"
#include "coordinator/images/destination.h"
#include "coordinator/images/image_catalog.h"
#include "coordinator/images/image_numbers.h"

namespace ckpt::coordinator {

class SnapshotOrders {
 public:
  struct Dependencies {
    NodeCalls& calls;
    JobTable& jobs;
    const ImageCatalog& catalog;
    ImageNumbers& numbers;
    RunningSnapshots& running;
    CheckpointStoreGrants& grants;
    control::asio::any_io_executor executor;
  };
  explicit SnapshotOrders(Dependencies deps) : deps_(std::move(deps)) {}

  // The checkpoint store's answer to the request for a grant.
  enum class CheckpointStore { kNotAsked, kAway, kGranted };
  struct Outcome {
    Result<void> captured = ok();
    bool has_begun = false;  // the node has reported on the snapshot
    bool failed = false;     // there is no image: the node reported a failure, or was never queried
    CheckpointStore checkpoint_store = CheckpointStore::kNotAsked;
  };

  // Creates the order for a snapshot of the job as it runs now. With `end_after` the job is ended once the
  // snapshot is taken.
  Result<wire::TakeSnapshot> order_of(const Job& job, const Destination& to, bool end_after);
  // Sends the order. Returns once the node has answered. Until then the snapshot is listed as running, as
  // `shown`.
  control::Task<Outcome> give(wire::TakeSnapshot order, RunningSnapshot shown,
                              std::chrono::milliseconds limit);
  // Checks whether the job's node could write an image to the destination. Changes nothing.
  control::Task<Result<void>> check(JobId id, Destination to);
  // Returns the destination of the job's protection. If that destination fails or cannot be used, returns the
  // checkpoint store of the job's own node and sets `error` to the reason.
  control::Task<Destination> working_destination(JobId id, std::string* error);
  // Cancels the job's snapshot. Returns once no snapshot of the job is in progress. Returns kNotFound if
  // there was none.
  control::Task<Result<void>> give_up(JobId id, std::string node, Incarnation incarnation);
  // Cancels the job's snapshot in the background. Waiters for the snapshot then receive its answer.
  void give_up_soon(JobId id, std::string node, Incarnation incarnation);

 private:
  [[nodiscard]] std::uint32_t suspects_of(const Job& job, const std::string& image_job) const;
  // Sends the order with the grant of the checkpoint store.
  control::Task<Result<void>> send(wire::TakeSnapshot order, std::string node,
                                   std::chrono::milliseconds limit);
  control::Task<> give_up_and_log(JobId id, std::string node, Incarnation incarnation);

  Dependencies deps_;
};

}  // namespace ckpt::coordinator
