// SPDX-License-Identifier: Apache-2.0
// A process's GPU context in the driver: locked, saved in the process, restored on this GPU or another,
// unlocked. The driver is queried for its state (inspect()). The job's record contains the context's current
// or last GPU. Therefore each step may be repeated, even by another agent.
// Threads: the event loop. A job has one object at a time (Job::release_mutex). Errors: the driver's errors.
// kDevice if the driver has lost the context.
#pragma once

#include <memory>

#include "agent/jobs/job.h"
#include "agent/migration/modes/migration_context.h"

namespace ckpt::agent {

// Returns the GPU of the job's context or, if `state` is kCheckpointed, the GPU on which the context was
// saved. The function corrects the record (job_record.h) if an earlier agent exited between the driver's
// restore and the update of the record.
Task<Result<GpuUuid>> gpu_of_context(const MigrationContext& context, std::shared_ptr<Job> job,
                                     context::ProcessState state);

class SavedContext {
 public:
  SavedContext(MigrationContext& context, std::shared_ptr<Job> job)
      : context_(context), job_(std::move(job)) {}

  // Finds the process and the driver's state for it. Call this function first.
  Task<Result<void>> inspect(std::shared_ptr<KeeperLink> keeper);
  // Locks the process. Afterwards none of its calls is in the driver, and nothing is in flight. After
  // kTimedOut the process continues to run.
  Task<Result<void>> lock(Milliseconds timeout);
  Task<Result<void>> save();
  // Restores the context on `gpu`, wherever it was. The context is then locked, unless it was already running
  // there.
  Task<Result<void>> restore(GpuUuid gpu);
  // Unlocks the process. The function repeats the unlock until the driver reports that the process runs,
  // because this must be known. An error does not prove that the process does not run.
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
