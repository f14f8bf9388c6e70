// SPDX-License-Identifier: Apache-2.0
// Descriptors and mappings that are not files on a disk. Kinds that CRIU is known to restore are accepted.
// All other kinds are reported, including kinds that a newer kernel adds. Tests used CRIU 4.2.1.
// Threads: any. The functions read files under /proc (use offload()). Errors: none. Descriptors that were
// closed in the meantime are accepted.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>

namespace ckpt::agent::host {

// Returns the reason why an open descriptor cannot travel whose link in /proc/PID/fd is not a path
// ("anon_inode:[perf_event]", "net:[4026531840]"). An empty string means that it can travel. `tree` contains
// the job's processes.
[[nodiscard]] std::string why_not_nameless(pid_t pid, int number, const std::string& link,
                                           const std::set<pid_t>& tree);
// Returns the reason why a mapping cannot travel whose name in /proc/PID/maps is not a path.
[[nodiscard]] std::string why_not_mapped(const std::string& name);
// Returns the reason why an open or mapped path has no file: secret memory, a message queue, ... `opened_as`
// also reaches a file without a name.
[[nodiscard]] std::string why_not_a_file(pid_t pid, const std::string& path, const std::string& opened_as);
// Returns the reason why a pipe cannot travel.
[[nodiscard]] std::string why_not_pipe(pid_t pid, int number);

}  // namespace ckpt::agent::host
