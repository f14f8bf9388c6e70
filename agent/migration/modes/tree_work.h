// SPDX-License-Identifier: Apache-2.0
// Walks over the processes of a job in a move. Each function reads files of /proc for every process, so it
// runs on the pool. Otherwise a job of hundreds of processes would block the loop, and with it every other
// job of the node.
// Threads: the event loop. Ownership: none. Errors: those of process_tree.h.
#pragma once

#include <sys/types.h>

#include <set>
#include <vector>

#include "agent/host_process/processes/process_tree.h"
#include "agent/io/async.h"
#include "agent/migration/modes/migration_context.h"

namespace ckpt::agent {

Task<Milliseconds> time_limit_of(MigrationContext& context, pid_t root);
Task<Result<host::DumpEstimate>> estimate_dump(MigrationContext& context, pid_t root);
Task<host::TreeSize> size_of_tree(MigrationContext& context, pid_t root);
Task<Result<std::vector<pid_t>>> processes_of(MigrationContext& context, pid_t root);
Task<Result<void>> resume_source(MigrationContext& context, pid_t root, std::set<pid_t> stopped = {});
Task<Result<void>> check_credentials(MigrationContext& context, pid_t root, uid_t uid, gid_t gid);

}  // namespace ckpt::agent
