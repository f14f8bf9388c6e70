// SPDX-License-Identifier: Apache-2.0
// Descriptors and mappings that are no files of a disk. What CRIU is known to restore passes, and all else is named:
// kinds that a newer kernel adds, too. Tried with CRIU 4.2.1.
// Threads: any; reads files under /proc (offload()). Errors: none; what is gone meanwhile passes.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>

namespace ckpt::agent::host {

// Why an open descriptor whose link in /proc/PID/fd is no path cannot travel ("anon_inode:[perf_event]",
// "net:[4026531840]"); empty: it can. `tree`: the job's processes.
[[nodiscard]] std::string why_not_nameless(pid_t pid, int number, const std::string& link,
                                           const std::set<pid_t>& tree);
// The same for a mapping's name in /proc/PID/maps that is no path.
[[nodiscard]] std::string why_not_mapped(const std::string& name);
// Why a file that is open or mapped under a path is none that has one: secret memory, a message queue, ... `opened_as`
// also reaches a file without a name.
[[nodiscard]] std::string why_not_a_file(pid_t pid, const std::string& path, const std::string& opened_as);
// Why a pipe cannot travel.
[[nodiscard]] std::string why_not_pipe(pid_t pid, int number);

}  // namespace ckpt::agent::host
