// SPDX-License-Identifier: Apache-2.0
// Open files under /proc and of control groups. A process that has a file of its own there (/proc/self/statm)
// gets that of its restored process. CRIU names it by the process's number on this node, so the image gets
// /proc/self instead. A file of another process, or of a thread, would be another process's file at the
// target.
// Threads: any. Errors: none; what is in the way is a text for the user.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>

namespace ckpt::agent::host {

// True if the path names a process: "/proc/41/statm".
[[nodiscard]] bool names_process(const std::string& path);

// Why an open file of that path does not move with process `pid`. Empty: it does, or is another file.
[[nodiscard]] std::string why_not_its_own(pid_t pid, const std::string& path);

// Returns the path by /proc/self if the file is one of a process in `tree`; else the path as it is.
[[nodiscard]] std::string by_self(const std::string& path, const std::set<pid_t>& tree);

}  // namespace ckpt::agent::host
