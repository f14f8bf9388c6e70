// SPDX-License-Identifier: Apache-2.0
// /dev/shm as processes use it: which of its files a process has open or mapped, and the names of a file there.
// Threads: any. Errors: none; what is gone meanwhile is left out.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace ckpt::agent::host {

inline constexpr const char* kSharedFolder = "/dev/shm/";

// Files directly in it; by inode, whether by a name that is gone.
std::map<std::uint64_t, bool> shared_files_of(pid_t pid);

// Every name of these files there.
std::map<std::uint64_t, std::vector<std::string>> names_of(const std::set<std::uint64_t>& inodes);

// By inode, one process that has the file; the processes of `but` do not count.
std::map<std::uint64_t, pid_t> holders_of(const std::set<std::uint64_t>& inodes, const std::set<pid_t>& but);

}  // namespace ckpt::agent::host
