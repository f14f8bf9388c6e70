// SPDX-License-Identifier: Apache-2.0
// Files in /dev/shm that a job has by name alone. The job created the files and may open them again, but no
// process has them open or mapped. An extended attribute, the mark, names the owner. SharedFolderWatch writes
// the PID
// namespace of the maker. An agent that makes files for a job writes the job. A file without a mark counts as
// the job's if the job's user created it since the job started on this node. If that user has another job on
// this node, the file is reported instead.
// Threads: any. The functions read files under /proc (use offload()). Errors: none. Files that were removed
// in the meantime are left out.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "agent/host_process/processes/name_owner.h"

namespace ckpt::agent::host {

struct NamesAlone {
  std::set<std::uint64_t> files;      // inodes of the files that travel
  std::vector<std::string> problems;  // a text for each name that does not travel
};
// Returns the files that the job has by name alone. `held` are the inodes of the files that the job's
// processes have open or mapped.
[[nodiscard]] NamesAlone names_alone_of(const NameOwner& owner, const std::set<std::uint64_t>& held);

// Returns the mark for files that process `pid` creates. An empty string means that the process has exited.
[[nodiscard]] std::string mark_of_maker(pid_t pid);
// Returns the mark for files that an agent creates for a job.
[[nodiscard]] std::string mark_of_job(const std::string& job);
// Marks a file. With `replaces`, an existing mark is replaced. On a file system without extended attributes
// the function does nothing.
void set_mark(const std::string& path, const std::string& mark, bool replaces);

}  // namespace ckpt::agent::host
