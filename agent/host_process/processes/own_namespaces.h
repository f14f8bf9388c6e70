// SPDX-License-Identifier: Apache-2.0
// The mounts that only a job with its own namespaces has (docs/adr/0056): its /dev/shm and, on request, its
// /tmp. CRIU saves their contents with the process. Their files are therefore neither compared with the
// target, nor created there, nor removed. The node's other mounts are the same inside the job.
// Threads: any. The functions read files of the job. Errors: kIo if the job's mounts or its shared memory cannot
// be read, kNotFound if the job has exited. The other functions have none.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "agent/host_process/processes/mount_table.h"

namespace ckpt::agent::host {

struct OwnNamespaces {
  bool present = false;
  bool private_tmp = false;
  // Returns the folders, without a slash at the end. The list is empty for a job without such namespaces.
  [[nodiscard]] std::vector<std::string> folders() const;
  // Checks whether the job's `path` is one of the folders or lies in one.
  [[nodiscard]] bool contains(const std::string& path) const;
};

// The maximum size and number of the files in the folders. CRIU packs them in the pause.
inline constexpr std::uint64_t kMaxOwnMemory = std::uint64_t{256} << 20;
inline constexpr std::uint64_t kMaxOwnMemoryFiles = 65'536;

// The contents of the folders.
struct OwnMemory {
  std::uint64_t bytes = 0;  // the size of the files and of the job's System V shared memory
  std::uint64_t files = 0;  // the number of files, folders and links
};
// Returns what CRIU packs in the pause. The function starts a thread.
Result<OwnMemory> own_memory(pid_t root, const OwnNamespaces& own);
// Returns why CRIU cannot pack so much in the pause, or an empty string if it can.
[[nodiscard]] std::string why_too_much(const OwnMemory& memory, const OwnNamespaces& own);

// Calls `look` in a thread of its own within the IPC namespace of `root`. Returns false if the thread could not
// enter the namespace.
bool within_ipc_of(pid_t root, const std::function<void()>& look);

// Returns texts for the obstacles in the namespaces of the job `root`. A namespace that is still the node's
// is an obstacle: an older agent or keeper has started the job without a namespace of its own. A mount that
// only the job has is an obstacle, because it would have to be packed or mounted again. A folder of the job
// whose mount is missing or covered is one, because its files would not be packed.
[[nodiscard]] std::vector<std::string> why_not_own(pid_t root, const OwnNamespaces& own);
// Returns the paths of mounts that are neither the node's nor the job's folders.
[[nodiscard]] std::vector<std::string> strange_mounts(const std::vector<Mount>& of_job,
                                                      const std::vector<Mount>& of_node,
                                                      const OwnNamespaces& own);
// Returns the paths among the job's folders and /proc that no longer have the job's own mount, or have a
// second one.
[[nodiscard]] std::vector<std::string> changed_own_mounts(const std::vector<Mount>& of_job,
                                                          const std::vector<Mount>& of_node,
                                                          const OwnNamespaces& own);

// Returns the id of the mount through which process `pid` has opened its descriptor `number`. The result is
// -1 if the descriptor is closed.
[[nodiscard]] int mount_of_descriptor(pid_t pid, int number);

}  // namespace ckpt::agent::host
