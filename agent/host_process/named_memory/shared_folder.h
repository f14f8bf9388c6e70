// SPDX-License-Identifier: Apache-2.0
// Looks at /dev/shm: the files there that a process has open or mapped, and the names of a file.
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

// Returns files directly in the folder, by inode; true: by a name that is gone.
std::map<std::uint64_t, bool> shared_files_of(pid_t pid);

// Returns every name of these files in the folder.
std::map<std::uint64_t, std::vector<std::string>> names_of(const std::set<std::uint64_t>& inodes);

// Returns one process for each inode that has the file; the processes of `but` do not count.
std::map<std::uint64_t, pid_t> holders_of(const std::set<std::uint64_t>& inodes, const std::set<pid_t>& but);

}  // namespace ckpt::agent::host
