// SPDX-License-Identifier: Apache-2.0
// Open descriptors of other processes: their kinds, their other owners, and copies of them for this process.
// Threads: any. The functions read files under /proc (use offload()). Errors: none. Descriptors that were
// closed, or that may not be inspected, are left out.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "libckpt/base/fd.h"

namespace ckpt::agent::host {

using Inode = std::uint64_t;

struct Owner {
  pid_t pid = 0;
  std::string name;  // text of /proc/PID/comm
};
// Returns for each inode one process that has it open. `kind` has the meaning of inode_of()'s parameter.
// Inodes without a process, or with a process that may not be inspected, are left out. If several processes
// have an inode open, the function prefers a process that is not in `besides`.
std::map<Inode, Owner> owners_of(const std::set<Inode>& inodes, const char* kind,
                                 const std::set<pid_t>& besides);

// Returns the access mode of an open descriptor: O_RDONLY, O_WRONLY or O_RDWR. The result is O_RDONLY if the
// descriptor is closed.
[[nodiscard]] int access_of(pid_t pid, int number);
// Returns N of "KIND:[N]", or 0 if `link` has another form.
[[nodiscard]] Inode inode_of(const std::string& link, const char* kind);

// Returns a descriptor of this process for the same open file (pidfd_getfd(2)). If the process or the
// descriptor no longer exists, the result is invalid and errno has the reason.
[[nodiscard]] UniqueFd borrow_descriptor(pid_t pid, int number);

}  // namespace ckpt::agent::host
