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

// Returns the reason why an open descriptor cannot travel. `link` is the descriptor's link in /proc/PID/fd,
// which is not a path ("anon_inode:[perf_event]", "net:[4026531840]"). An empty string means that the
// descriptor can travel. `tree` contains the job's processes.
[[nodiscard]] std::string why_not_nameless(pid_t pid, int number, const std::string& link,
                                           const std::set<pid_t>& tree);
// Returns the reason why a mapping cannot travel. `name` is its name in /proc/PID/maps. An empty string means
// that the mapping can travel, or that `name` is a path.
[[nodiscard]] std::string why_not_mapped(const std::string& name);
// Returns the reason why an open or mapped path cannot travel: it is a kernel object and no file, such as
// secret memory or a message queue. An empty string means that there is no such reason. `opened_as` is a path
// that reaches the file even if the file has no name.
[[nodiscard]] std::string why_not_a_file(pid_t pid, const std::string& path, const std::string& opened_as);
// Returns the reason why a pipe cannot travel.
[[nodiscard]] std::string why_not_pipe(pid_t pid, int number);

}  // namespace ckpt::agent::host
