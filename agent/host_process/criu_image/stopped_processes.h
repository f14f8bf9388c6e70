// SPDX-License-Identifier: Apache-2.0
// Processes that a program had stopped itself before its dump (SIGSTOP, SIGTSTP, ...). CRIU leaves all
// processes stopped after a dump and a restore. These stay stopped when the others go on. A file in the job's
// folder at the source names them for a later agent.
// Threads: any; all of it blocks for milliseconds (offload()). Errors: none; an image that cannot be read
// names none.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>

namespace ckpt::agent::host {

// Returns them by their ids in the dumped PID namespace. None if the first process was stopped: then the
// whole job was stopped from outside.
[[nodiscard]] std::set<pid_t> stopped_in(const std::string& images);

// Keeps them in `folder` until take_stopped(). Called at the source, after the dump. Without such processes
// there is no file.
void keep_stopped(const std::string& folder, const std::set<pid_t>& stopped);
[[nodiscard]] std::set<pid_t> take_stopped(const std::string& folder);

}  // namespace ckpt::agent::host
