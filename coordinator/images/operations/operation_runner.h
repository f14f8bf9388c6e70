// SPDX-License-Identifier: Apache-2.0
// Carries operations on jobs' images from stage to stage: looks at the nodes, orders the next step of
// image_operation.h, and has the outcome recorded. After a restart it continues with the open ones.
//
// Never two instances: a job goes on from an image only once every instance before is known to have ended.
// Its node reports that, or the operator states it (`--force`). An instance that turns up later with an
// older incarnation is ended (Job::fenced). An operation is a part of the job's record and durable before
// each order.
// Threads: one io_context on one thread. Ownership: borrows its parts, which outlive it. Errors: begin()
// returns those of the store; later ones are the operation's outcome.
#pragma once

#include <chrono>
#include <vector>

#include "coordinator/images/image_operation.h"
#include "coordinator/images/operations/operation_records.h"
#include "coordinator/images/snapshot_orders.h"
#include "coordinator/operations/gang_rendezvous.h"

namespace ckpt::coordinator {

class OperationRunner {
 public:
  struct Parts {
    const Config& config;
    NodeTable& nodes;
    NodeCalls& calls;
    InstanceEnds& ends;
    JobTable& jobs;
    const ImageCatalog& catalog;
    const ImageReports& reports;
    ImageTasks& tasks;
    SnapshotOrders& snapshots;
    VaultGrants& grants;
    OpenOperations& open;
    OperationRecords& records;
    const GangRendezvous& rendezvous;
    control::asio::any_io_executor executor;
  };
  explicit OperationRunner(Parts parts) : parts_(std::move(parts)) {}

  // Once, after the jobs have been loaded: continues the open ones.
  void start();
  // Durable when it returns. It replaces an operation of the job that was open.
  Result<TaskId> begin(JobId id, ImageOperation operation);
  struct Begun {
    JobId job = 0;
    ImageOperation operation;
    TaskId task = 0;
  };
  // Begins operations of several jobs: all of them or none. Returns them with the tasks that show them.
  Result<std::vector<Begun>> begin_all(std::vector<Begun> operations);

 private:
  // The job with its new operation; not stored yet.
  Job prepare(const Job& job, ImageOperation operation);
  void drive(JobId id);
  control::Task<> carry_on(JobId id);
  [[nodiscard]] OperationView view_of(const Job& job) const;
  control::Task<> perform(JobId id, OperationStep step);
  Result<void> record(JobId id, OperationStep step);
  void close_expired_task(JobId id);

  control::Task<> take_last_snapshot(JobId id);
  control::Task<> cancel_last_snapshot(JobId id);
  control::Task<> ask_vault(JobId id);
  control::Task<> end_instances(JobId id);
  control::Task<> end_instance(JobId id, std::string node, Incarnation up_to);
  control::Task<> start_restored(JobId id);
  control::Task<Result<void>> was_started(ImageOperation operation, wire::RestoreImage order, Error why);
  [[nodiscard]] bool is_still_starting(JobId id, const ImageOperation& operation) const;
  control::Task<Result<void>> order_start(ImageOperation operation, wire::RestoreImage order);

  Parts parts_;
};

}  // namespace ckpt::coordinator
