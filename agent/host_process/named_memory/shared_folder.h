// SPDX-License-Identifier: Apache-2.0
// Reads /dev/shm: the files that a process has open or mapped, and the names of a file.
// Threads: any. Errors: none. Files that were removed in the meantime are left out.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace ckpt::agent::host {

inline constexpr const char* kSharedFolder = "/dev/shm/";

// Returns the files directly in the folder that process `pid` has open or mapped, by inode. The value is true
// if the process has the file by a removed name.
std::map<std::uint64_t, bool> shared_files_of(pid_t pid);

// Returns every name in the folder for each of the inodes.
std::map<std::uint64_t, std::vector<std::string>> names_of(const std::set<std::uint64_t>& inodes);

// Returns for each inode one process that has the file open or mapped. The processes in `but` are ignored.
std::map<std::uint64_t, pid_t> holders_of(const std::set<std::uint64_t>& inodes, const std::set<pid_t>& but);

}  // namespace ckpt::agent::host
