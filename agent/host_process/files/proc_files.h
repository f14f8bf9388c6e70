// SPDX-License-Identifier: Apache-2.0
// Open files under /proc and of control groups. If a process has its own file open there (/proc/self/statm),
// the restored process gets its own file. CRIU names the file by the process's number on this node, so the
// image gets /proc/self instead. A file of another process, or of a thread, would belong to an unrelated
// process at the target.
// Threads: any. Errors: none. An obstacle is a text for the user.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>

namespace ckpt::agent::host {

// Checks whether the path names a process, as "/proc/41/statm" does.
[[nodiscard]] bool names_process(const std::string& path);

// Returns the reason why an open file of `path` does not move with process `pid`. An empty string means that
// the file moves, or is another kind of file.
[[nodiscard]] std::string why_not_its_own(pid_t pid, const std::string& path);

// Returns the reason why an open file of `path` does not move with a job that has its own /proc. There a
// process keeps its id, so only files of threads and of control groups do not move. An empty string means
// that the file moves.
[[nodiscard]] std::string why_not_in_own_proc(const std::string& path);

// Returns the path with /proc/self if the file belongs to a process in `tree`. Returns other paths unchanged.
[[nodiscard]] std::string by_self(const std::string& path, const std::set<pid_t>& tree);

}  // namespace ckpt::agent::host
