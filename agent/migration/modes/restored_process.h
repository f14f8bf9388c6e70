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
#include "agent/jobs/keeper_files.h"
#include "agent/jobs/keeper_link.h"
#include "agent/migration/modes/job_operation.h"
#include "agent/migration/modes/migration_context.h"

namespace ckpt::agent {

// How a keeper takes a process from an image of `bytes` (agent/keeper/init/restored.h).
[[nodiscard]] HostRestore restore_order(const host::Criu& criu, const host::RestoreOptions& options,
                                        std::uint64_t bytes);

// The keeper and its restored process, in place of what an earlier attempt left. The error has CRIU's own reason.
Task<Result<std::shared_ptr<Job>>> start_restored(MigrationContext& context, const JobOperation& operation,
                                                  JobRecord record, HostRestore order);

// `device_bytes`: of its context; the more, the longer it may take. `stopped`: stopped_processes.h.
Task<Result<void>> call_back(MigrationContext& context, std::shared_ptr<KeeperLink> keeper, pid_t root,
                             std::uint64_t device_bytes, std::set<pid_t> stopped);

}  // namespace ckpt::agent
