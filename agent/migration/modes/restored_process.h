// SPDX-License-Identifier: Apache-2.0
// Connects a process that CRIU has restored and left stopped with its keeper at a target. Until Resume, only
// the threads run that restore its context and memory (ADR 25, agent/keeper/rank/thread_hold.h). Therefore no
// code of the program runs twice if the restore fails and the source continues.
// Threads: the event loop. Errors: the keeper's errors. A driver that cannot name its restore thread causes
// no error: the whole process then runs from this point on.
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

// The work of a restore, which determines the time that CRIU may take for a process (docs/adr/0050). The
// source of a migration can continue with the process. Therefore a restore is aborted if it takes far longer
// than expected, or exceeds the limit of the pause. A restore from an image has no limit.
struct RestoreWork {
  std::uint64_t image_bytes = 0;
  std::uint64_t restored_bytes = 0;  // bytes that are restored before the process continues
  host::TreeSize size;
  Nanos paused_ns = 0;  // value of HostState::paused_ns
};
// Returns the time that CRIU may take. kAborted means that the pause has already exceeded its limit.
Result<Milliseconds> restore_time(const wire::CostLine& line, const JobOperation& operation,
                                  const RestoreWork& work);
// Returns kAborted if the operation's pause has exceeded its limit.
Result<void> check_pause(const JobOperation& operation, Nanos paused_ns);

// Returns the order with which a keeper restores a process from an image (agent/keeper/init/restored.h).
[[nodiscard]] HostRestore restore_order(const host::Criu& criu, const host::RestoreOptions& options,
                                        Milliseconds timeout);

// Starts the keeper and its restored process, and replaces the remains of an earlier attempt. The error
// contains CRIU's own reason.
Task<Result<std::shared_ptr<Job>>> start_restored(MigrationContext& context, const JobOperation& operation,
                                                  JobRecord record, HostRestore order);

// Calls the process back to its keeper. `device_bytes` is the size of its context, and a larger context may
// take longer. `stopped` are the processes of stopped_processes.h. Returns true if the process is held.
Task<Result<bool>> call_back(MigrationContext& context, std::shared_ptr<KeeperLink> keeper, pid_t root,
                             std::uint64_t device_bytes, std::set<pid_t> stopped);

}  // namespace ckpt::agent
