// SPDX-License-Identifier: Apache-2.0
// A paused rank of a transparent job between two GPUs (DESIGN §3): its device memory given away (the keeper holds the descriptors), its
// context, thin now, saved by the driver in the process's own memory; then the context on a GPU again and memory at the old addresses.
//   save_context()   paused, as it ran                     -> memory released, context saved
//   place_context()  any of these, however far it came     -> context on a GPU, the memory of a set mapped; still paused
// Where the rank is, is asked of its keeper and the driver, and the GPU of its context is in the job's record: so both may be repeated,
// by another agent, too, and one undoes half of the other.
// Threads: the event loop; calls for one job wait for one another. Errors: kUnavailable without a keeper; else the driver's or the
// rank's, after which the other call may still succeed.
#pragma once

#include <memory>

#include "agent/job.h"
#include "agent/migration_context.h"

namespace ckpt::agent {

// Which memory a rank gets: a set of its keeper's, and whose if it arrived.
struct MemoryChoice {
  MemoryChoice(local::MemorySet which, wire::MigrationId id) : set(which), migration(id) {}
  local::MemorySet set;
  wire::MigrationId migration;
};

Task<Result<void>> save_context(MigrationContext& context, std::shared_ptr<Job> job);
// When the context was on the GPU (now_ns(); 0: it had been there).
Task<Result<Nanos>> place_context(MigrationContext& context, std::shared_ptr<Job> job, local::GpuIdentity gpu,
                                  MemoryChoice memory);

}  // namespace ckpt::agent
