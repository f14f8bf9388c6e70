// SPDX-License-Identifier: Apache-2.0
// A process that was running before its keeper: not a child of it, perhaps no leader of a process group. It
// is watched by a process descriptor and signalled with all of its descendants. Threads: none. Ownership:
// nothing; the process stays its own parent's child.
// Errors: kNotFound if it has ended, or its number belongs to another process by now.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::keeper {

// How a process ended whose parent is another: not known. No wait status has this value.
inline constexpr int kUnknownStatus = -1;

// Readable when the process has ended. `start_ticks`: field 22 of /proc/PID/stat.
Result<UniqueFd> open_process(pid_t pid, std::uint64_t start_ticks);

// Parents before children; empty if there is no such process.
[[nodiscard]] std::vector<pid_t> tree_of(pid_t root);
// SIGKILL also reaches processes that are forked meanwhile.
void signal_tree(pid_t root, int signal);
// No process of the tree runs (stopped, or ended).
[[nodiscard]] bool is_stopped(pid_t root);

}  // namespace ckpt::keeper
