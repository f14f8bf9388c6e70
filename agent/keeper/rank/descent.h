// SPDX-License-Identifier: Apache-2.0
// The descent of processes. Session, process group and user play no part. A process that loses
// its parent goes to the nearest subreaper, or to the init of its PID namespace.
// Threads: any. Ownership: none. Errors: none; what has ended is left out.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace ckpt::keeper {

// Returns field 22 of /proc/PID/stat; 0 if there is no such process.
[[nodiscard]] std::uint64_t start_ticks_of(pid_t pid);

// Returns `pid`, its parent, that one's parent, and so on, as they were at one moment. Empty if it is gone,
// or if its ancestors changed each time.
[[nodiscard]] std::vector<pid_t> line_of(pid_t pid);

[[nodiscard]] std::vector<pid_t> children_of(pid_t pid);

// Returns the living processes of `roots` and their descendants, parents before children. A list of running
// processes may lack some that were forked or lost their parent meanwhile; one of stopped processes is whole.
[[nodiscard]] std::vector<pid_t> tree_of(std::vector<pid_t> roots);
[[nodiscard]] inline std::vector<pid_t> tree_of(pid_t root) {
  return tree_of(std::vector<pid_t>{root});
}

// True if no thread of `pid` executes its program. Each is stopped, traced, ended, or in an uninterruptible
// wait, after which a stop comes before its program goes on.
[[nodiscard]] bool stands_still(pid_t pid);
[[nodiscard]] bool stand_still(const std::vector<pid_t>& pids);

// True if it was stopped by a signal (state T).
[[nodiscard]] bool is_stopped(pid_t pid);

// True if it is the first process of a PID namespace below this process's.
[[nodiscard]] bool is_namespace_init(pid_t pid);

}  // namespace ckpt::keeper
