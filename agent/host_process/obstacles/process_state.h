// SPDX-License-Identifier: Apache-2.0
// Obstacles to a dump or restore of a process as a whole, independent of its open files. Tests used CRIU
// 4.2.1. The comments quote CRIU's error for an obstacle that is not found earlier.
// Threads: any. The functions read files under /proc (use offload()). Errors: none. Processes that have
// exited in the meantime are left out.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

namespace ckpt::agent::host {

// Ids of processes that stop tracing before the dump: this agent and the job's keeper.
using Tracers = std::set<pid_t>;

// Returns a text for each obstacle of process `pid` in the tree of `root`. The text contains the process and
// a remedy. `has_own_namespaces` means that the job has its own mount and IPC namespaces.
[[nodiscard]] std::vector<std::string> obstacles_of_process(pid_t pid, pid_t root, const Tracers& own,
                                                            bool has_own_namespaces = false);

// Returns a text such as "process 12 (python3)".
[[nodiscard]] std::string name_of_process(pid_t pid);

}  // namespace ckpt::agent::host
