// SPDX-License-Identifier: Apache-2.0
// A process's GPU context in the driver's hands: locked, saved in the process, restored on this GPU or
// another, unlocked. The driver is queried for its state (look()). Which GPU it is or was on is in the job's
// record. So each step may be repeated, by another agent, too.
// Threads: the event loop; one object at a time for a job (Job::thin_turn). Errors: the driver's; kDevice for
// a context that it has lost.
#pragma once

#include <memory>

#include "agent/jobs/job.h"
#include "agent/migration/modes/migration_context.h"

namespace ckpt::agent {

// Where the job's context is, or, `state` being kCheckpointed, was when it was saved. The record
// (job_record.h) is brought up to date where an earlier agent ended between the driver's restore and writing
// so down.
Task<Result<GpuUuid>> gpu_of_context(const MigrationContext& context, std::shared_ptr<Job> job,
                                     context::ProcessState state);

class SavedContext {
 public:
  SavedContext(MigrationContext& context, std::shared_ptr<Job> job)
      : context_(context), job_(std::move(job)) {}

  // First: which process it is, and the driver's state of it.
  Task<Result<void>> look(std::shared_ptr<KeeperLink> keeper);
  // Nothing of the process is in the driver any more, and nothing in flight. kTimedOut: it runs on.
  Task<Result<void>> lock(Milliseconds timeout);
  Task<Result<void>> save();
  // On `gpu`, wherever it was; locked, if it was not running there already.
  Task<Result<void>> restore(GpuUuid gpu);
  // It runs. Repeated until the driver reports it: whether a process runs must be known. An error does not
  // show that it does not.
  Task<Result<void>> unlock();

 private:
  Task<Result<void>> restore_on(std::vector<context::GpuPair> pairs);

  MigrationContext& context_;
  std::shared_ptr<Job> job_;
  pid_t pid_ = 0;
  context::ProcessState state_ = context::ProcessState::kRunning;
  GpuUuid on_{};
};

}  // namespace ckpt::agent
