// SPDX-License-Identifier: Apache-2.0
// Runs operations on jobs' images from stage to stage. It checks the state of the nodes, and orders the next
// step of image_operation.h. The outcome is an event of the job's state machine. After a restart it continues
// with the open operations.
//
// Two instances must never run. A job continues from an image only once every earlier instance is known to
// have ended. Its node reports that, or the operator confirms it (`--force`). An instance with an older
// incarnation that appears later is ended (Job::fenced). An operation is a part of the job's record, and
// durable before each order.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors:
// begin() returns those of the store; later errors are the operation's outcome.
#pragma once

#include <chrono>
#include <vector>

#include "coordinator/images/image_operation.h"
#include "coordinator/images/image_reports.h"
#include "coordinator/images/operations/open_operations.h"
#include "coordinator/images/snapshot_orders.h"
#include "coordinator/operations/gang_rendezvous.h"
#include "coordinator/operations/order_sender.h"

namespace ckpt::coordinator {

class OperationRunner {
 public:
  struct Dependencies {
    const Config& config;
    NodeTable& nodes;
    NodeCalls& calls;
    OrderSender& orders;
    JobTable& jobs;
    JobRunner& job_runner;
    const lifecycle::JobView& view;
    const ImageCatalog& catalog;
    ImageReports& reports;
    ImageTasks& tasks;
    SnapshotOrders& snapshots;
    CheckpointStoreGrants& grants;
    OpenOperations& open;
    const GangRendezvous& rendezvous;
    control::asio::any_io_executor executor;
  };
  explicit OperationRunner(Dependencies deps);
  OperationRunner(const OperationRunner&) = delete;
  OperationRunner& operator=(const OperationRunner&) = delete;

  // Continues the open operations. Call this once, after the jobs have been loaded.
  void start();
  // Begins an operation, which is durable when this returns. It replaces an open operation of the job.
  Result<TaskId> begin(JobId id, ImageOperation operation);
  struct Begun {
    JobId job = 0;
    ImageOperation operation;
    TaskId task = 0;
  };
  // Begins operations of several jobs: all of them or none. Returns the operations with the tasks that show
  // them.
  Result<std::vector<Begun>> begin_all(std::vector<Begun> operations);

 private:
  void drive(JobId id);
  // Shows and runs an operation that no request has begun.
  void show_and_drive(JobId id);
  control::Task<> carry_on(JobId id);
  [[nodiscard]] OperationView view_of(const Job& job) const;
  control::Task<> perform(JobId id, OperationStep step);
  [[nodiscard]] lifecycle::JobEvent event_of(JobId id, OperationStep step) const;
  // Returns the event for a rank that has ended with its last image, as the checkpoint store lists it.
  [[nodiscard]] lifecycle::ImageStored image_stored(const Job& job) const;
  [[nodiscard]] lifecycle::RunsFromImage runs_from_image(const Job& job) const;
  // Passes the event to the job's state machine. Waits for a change if the event cannot be stored.
  control::Task<> record(JobId id, lifecycle::JobEvent event);
  void close_expired_task(JobId id);

  control::Task<> take_last_snapshot(JobId id);
  control::Task<> cancel_last_snapshot(JobId id);
  control::Task<> ask_checkpoint_store(JobId id);
  control::Task<> end_instances(JobId id);
  control::Task<> end_instance(JobId id, std::string node, Incarnation up_to);
  control::Task<> start_restored(JobId id);
  control::Task<Result<void>> was_started(ImageOperation operation, wire::RestoreImage order, Error error);
  [[nodiscard]] bool is_still_starting(JobId id, const ImageOperation& operation) const;
  control::Task<Result<void>> order_start(ImageOperation operation, wire::RestoreImage order);

  Dependencies deps_;
};

}  // namespace ckpt::coordinator
