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

// Returns the GPU of the job's context or, if `state` is kCheckpointed, the GPU on which it was saved. It
// corrects the record (job_record.h) if an earlier agent ended between the driver's restore and the record of
// it.
Task<Result<GpuUuid>> gpu_of_context(const MigrationContext& context, std::shared_ptr<Job> job,
                                     context::ProcessState state);

class SavedContext {
 public:
  SavedContext(MigrationContext& context, std::shared_ptr<Job> job)
      : context_(context), job_(std::move(job)) {}

  // Finds the process and the driver's state of it. Called first.
  Task<Result<void>> look(std::shared_ptr<KeeperLink> keeper);
  // Locks the process: none of its calls is in the driver, and nothing is in flight. kTimedOut: it runs on.
  Task<Result<void>> lock(Milliseconds timeout);
  Task<Result<void>> save();
  // Brings the context to `gpu`, wherever it was. It is locked then, unless it was running there already.
  Task<Result<void>> restore(GpuUuid gpu);
  // Unlocks the process, and repeats until the driver reports that it runs: whether it runs must be known. An
  // error does not prove that it does not.
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
