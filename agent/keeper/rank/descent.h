// SPDX-License-Identifier: Apache-2.0
// The descent of processes. Session, process group and user have no influence. A process that loses its
// parent becomes a child of the nearest subreaper, or of the init of its PID namespace.
// Threads: any. Ownership: none. Errors: none. Processes that have exited are left out.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace ckpt::keeper {

// Returns field 22 of /proc/PID/stat, or 0 if the process does not exist.
[[nodiscard]] std::uint64_t start_ticks_of(pid_t pid);

// Returns `pid`, its parent, and all further ancestors, as they were at one moment. The result is empty if
// `pid` no longer exists, or if its ancestors changed at each attempt.
[[nodiscard]] std::vector<pid_t> line_of(pid_t pid);

[[nodiscard]] std::vector<pid_t> children_of(pid_t pid);

// Returns the living processes of `roots` and their descendants, parents before children. A list of running
// processes may lack some that were forked or lost their parent in the meantime. A list of stopped processes
// is complete.
[[nodiscard]] std::vector<pid_t> tree_of(std::vector<pid_t> roots);
[[nodiscard]] inline std::vector<pid_t> tree_of(pid_t root) {
  return tree_of(std::vector<pid_t>{root});
}

// Checks whether no thread of `pid` executes its program. Every thread is stopped, traced, exited, or in an
// uninterruptible wait. After such a wait, a stop takes effect before the program continues.
[[nodiscard]] bool stands_still(pid_t pid);
[[nodiscard]] bool stand_still(const std::vector<pid_t>& pids);

// Checks whether a signal has stopped the process (state T).
[[nodiscard]] bool is_stopped(pid_t pid);

// Checks whether the process is the first one of a PID namespace below this process's.
[[nodiscard]] bool is_namespace_init(pid_t pid);

}  // namespace ckpt::keeper
