// SPDX-License-Identifier: Apache-2.0
// Obstacles to a dump or restore of a process as a whole, whatever it has open. Tried with CRIU 4.2.1; the
// comments name what CRIU does where an obstacle is not found before.
// Threads: any; reads files under /proc (offload()). Errors: none; what is gone meanwhile is left out.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

namespace ckpt::agent::host {

// Tracers that end before the dump: this agent, and the job's keeper.
using Tracers = std::set<pid_t>;

// A text for each obstacle of process `pid` in the tree of `root`, with the process and a remedy.
[[nodiscard]] std::vector<std::string> obstacles_of_process(pid_t pid, pid_t root, const Tracers& own);

// "process 12 (python3)"
[[nodiscard]] std::string name_of_process(pid_t pid);

}  // namespace ckpt::agent::host
