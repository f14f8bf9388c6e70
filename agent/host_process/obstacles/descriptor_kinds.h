// SPDX-License-Identifier: Apache-2.0
// Descriptors and mappings that are not files of a disk. Kinds that CRIU is known to restore pass. All others
// are named, with those that a newer kernel adds. Tried with CRIU 4.2.1.
// Threads: any; reads files under /proc (offload()). Errors: none; what is gone meanwhile passes.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>

namespace ckpt::agent::host {

// Returns why an open descriptor whose link in /proc/PID/fd is no path cannot travel
// ("anon_inode:[perf_event]", "net:[4026531840]"); empty: it can. `tree`: the job's processes.
[[nodiscard]] std::string why_not_nameless(pid_t pid, int number, const std::string& link,
                                           const std::set<pid_t>& tree);
// The same for a mapping's name in /proc/PID/maps that is not a path.
[[nodiscard]] std::string why_not_mapped(const std::string& name);
// Returns why a file that is open or mapped under a path has none: secret memory, a message queue, ...
// `opened_as` also reaches a file without a name.
[[nodiscard]] std::string why_not_a_file(pid_t pid, const std::string& path, const std::string& opened_as);
// Returns why a pipe cannot travel.
[[nodiscard]] std::string why_not_pipe(pid_t pid, int number);

}  // namespace ckpt::agent::host
