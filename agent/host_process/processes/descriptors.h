// SPDX-License-Identifier: Apache-2.0
// Open descriptors of other processes: what they are, who else has them, and copies of them for this process.
// Threads: any; reads files under /proc (offload()). Errors: none; what is gone, or may not be inspected, is
// left out.
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
  std::string name;  // /proc/PID/comm
};
// A process that has each of these open; `kind` as for inode_of(). What no process has, or one that may not
// be inspected, is left out. Of several processes one that is not in `besides` is named.
std::map<Inode, Owner> owners_of(const std::set<Inode>& inodes, const char* kind,
                                 const std::set<pid_t>& besides);

// The access mode of an open descriptor: O_RDONLY, O_WRONLY or O_RDWR; O_RDONLY if it is gone.
[[nodiscard]] int access_of(pid_t pid, int number);
// N of "KIND:[N]", 0 if `link` is not that.
[[nodiscard]] Inode inode_of(const std::string& link, const char* kind);

// A descriptor of this process for the same open file (pidfd_getfd(2)); invalid, and errno has the reason,
// where process or descriptor are gone.
[[nodiscard]] UniqueFd borrow_descriptor(pid_t pid, int number);

}  // namespace ckpt::agent::host
