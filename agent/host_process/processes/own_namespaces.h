// SPDX-License-Identifier: Apache-2.0
// The mounts that a job with namespaces of its own has alone (docs/adr/0056): its /dev/shm and, on request,
// its /tmp. CRIU saves their contents with the process, so nothing of them is compared with the target, made
// there or removed. The node's other mounts are the same inside the job.
// Threads: any. The functions read files of the job. Errors: none. A job that has ended has no files.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace ckpt::agent::host {

struct OwnNamespaces {
  bool present = false;
  bool private_tmp = false;
  // Returns the folders, without a slash at the end. The list is empty for a job without such namespaces.
  [[nodiscard]] std::vector<std::string> folders() const;
  // Checks whether the job's `path` is one of the folders or lies in one.
  [[nodiscard]] bool contains(const std::string& path) const;
};

// Returns the bytes of memory that the files in the folders use.
[[nodiscard]] std::uint64_t own_memory_bytes(pid_t root, const OwnNamespaces& own);

// Returns the ids of the mounts in the mount namespace of `pid`.
[[nodiscard]] std::set<int> mounts_of(pid_t pid);
// Returns the id of the mount through which process `pid` has opened its descriptor `number`. The result is
// -1 if the descriptor is closed.
[[nodiscard]] int mount_of_descriptor(pid_t pid, int number);

}  // namespace ckpt::agent::host
