// SPDX-License-Identifier: Apache-2.0
// Processes that a program had stopped itself before it was dumped (SIGSTOP, SIGTSTP, ...). CRIU leaves all processes of
// a dump and a restore stopped; these stay so when the others go on.
// At the source a file in the job's own folder tells a later agent of them.
// Threads: any; all of it blocks for milliseconds (offload()). Errors: none; an image that cannot be read names none.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>

namespace ckpt::agent::host {

// By their ids in the dumped PID namespace. None where its first process was stopped: then others had stopped it all.
[[nodiscard]] std::set<pid_t> stopped_in(const std::string& images);

// At the source, after the dump: kept in `folder` until take_stopped(). No file where there are none.
void keep_stopped(const std::string& folder, const std::set<pid_t>& stopped);
[[nodiscard]] std::set<pid_t> take_stopped(const std::string& folder);

}  // namespace ckpt::agent::host
