// SPDX-License-Identifier: Apache-2.0
// Processes that a program had stopped before its dump (SIGSTOP, SIGTSTP, ...). CRIU leaves all processes
// stopped after a dump and a restore. The processes that the program stopped must stay stopped when the other
// processes continue. A file in the job's folder at the source lists them for a later agent.
// Threads: any. All functions block for milliseconds (use offload()). Errors: none. An unreadable image lists
// no process.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>

namespace ckpt::agent::host {

// Returns the stopped processes by their ids in the dumped PID namespace. The result is empty if the first
// process was stopped, because the whole job was then stopped from outside.
[[nodiscard]] std::set<pid_t> stopped_in(const std::string& images);

// Stores the stopped processes in `folder` until pop_stopped() returns and removes them. Call store_stopped()
// at the source, after the dump. If there are no such processes, no file is written.
void store_stopped(const std::string& folder, const std::set<pid_t>& stopped);
[[nodiscard]] std::set<pid_t> pop_stopped(const std::string& folder);

}  // namespace ckpt::agent::host
