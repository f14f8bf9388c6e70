// SPDX-License-Identifier: Apache-2.0
// A paused rank of a transparent job between two GPUs (docs/design.md §3). Its device memory is released, and
// the keeper holds the descriptors. The context is then small, and the driver saves it in the process's own
// memory. Afterwards the context is on a GPU again, with memory at the old addresses.
//   save_context()   paused, as it ran                     -> memory released, context saved
//   place_context()  any of these, however far it came     -> context on a GPU, with the memory of a set
//                                                             (remap.h); still paused
// Keeper and driver are queried for the rank's state, and the job's record contains the GPU of the context.
// Therefore both functions may be repeated, even by another agent, and each undoes a half-finished call of
// the other.
// Threads: the event loop. Calls for one job wait for one another. Errors: kUnavailable without a keeper, or
// else errors of the driver or the rank. After an error, the other call may still succeed.
#pragma once

#include <memory>

#include "agent/jobs/job.h"
#include "agent/migration/modes/migration_context.h"
#include "libckpt/protocol/wire/migration_messages.h"

namespace ckpt::agent {

// The memory that a rank gets: a set of its keeper, and the migration with which the set arrived.
struct MemoryChoice {
  MemoryChoice(local::MemorySet which, wire::MigrationId id) : set(which), migration(id) {}
  local::MemorySet set;
  wire::MigrationId migration;
};

Task<Result<void>> save_context(MigrationContext& context, std::shared_ptr<Job> job);
// The times (now_ns()) at which the context was on the GPU, and at which the rank's own new memory had its
// content. 0 means that there was no such step.
struct RestoreTimings {
  Nanos restored_ns = 0;
  Nanos filled_ns = 0;
  void add_to(wire::TargetReport& report) const {
    report.context_restored_ns = restored_ns;
    report.memory_filled_ns = filled_ns;
  }
};
// Places the context. No mover of that GPU may hold the rank's memory. The memory would then exist twice
// while the rank's own memory is filled (remap.h).
Task<Result<RestoreTimings>> place_context(MigrationContext& context, std::shared_ptr<Job> job,
                                           local::GpuIdentity gpu, MemoryChoice memory);

}  // namespace ckpt::agent
