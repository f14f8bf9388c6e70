// SPDX-License-Identifier: Apache-2.0
// A process that CRIU has restored at a target, and left stopped, comes back to its keeper. Until Resume only
// what restores its context and memory runs (ADR 25, agent/keeper/rank/thread_hold.h). So a restore that
// fails repeats nothing at the source.
// Threads: the event loop. Errors: the keeper's. A driver that cannot name its thread is none: then the whole
// process runs from here on.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <set>

#include "agent/host_process/criu.h"
#include "agent/host_process/processes/process_tree.h"
#include "agent/jobs/keeper_files.h"
#include "agent/jobs/keeper_link.h"
#include "agent/migration/modes/job_operation.h"
#include "agent/migration/modes/migration_context.h"

namespace ckpt::agent {

// Returns the time that CRIU may take for a process (docs/adr/0050). The source of a migration can go on with
// the process, so a restore that takes far longer than expected is given up, and so is one that passes the
// limit of the pause. A restore from an image has no limit.
struct RestoreWork {
  std::uint64_t image_bytes = 0;
  std::uint64_t restored_bytes = 0;  // before the process goes on
  host::TreeSize size;
  Nanos paused_ns = 0;  // HostState::paused_ns
};
// kAborted: the pause has passed its limit already.
Result<Milliseconds> restore_time(const wire::CostLine& line, const JobOperation& operation,
                                  const RestoreWork& work);
// Returns kAborted once the operation's pause has passed its limit.
Result<void> check_pause(const JobOperation& operation, Nanos paused_ns);

// Returns the order by which a keeper takes a process from an image (agent/keeper/init/restored.h).
[[nodiscard]] HostRestore restore_order(const host::Criu& criu, const host::RestoreOptions& options,
                                        Milliseconds timeout);

// Starts the keeper and its restored process, in place of an earlier attempt's remains. The error has CRIU's
// own reason.
Task<Result<std::shared_ptr<Job>>> start_restored(MigrationContext& context, const JobOperation& operation,
                                                  JobRecord record, HostRestore order);

// `device_bytes`: of its context; the more, the longer it may take. `stopped`: stopped_processes.h. True: it
// is held.
Task<Result<bool>> call_back(MigrationContext& context, std::shared_ptr<KeeperLink> keeper, pid_t root,
                             std::uint64_t device_bytes, std::set<pid_t> stopped);

}  // namespace ckpt::agent
