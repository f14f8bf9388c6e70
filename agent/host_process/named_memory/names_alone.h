// SPDX-License-Identifier: Apache-2.0
// Files in /dev/shm that a job has by name alone. The job made them and may open them again, and no process
// has them open or mapped. An extended attribute, the mark, names the owner. SharedFolderWatch writes the PID
// namespace of the maker. An agent that makes files for a job writes the job. A file without a mark counts as
// the job's if its user made it since the job started here. If that user has another job on this node, the
// file is reported instead.
// Threads: any; reads files under /proc (offload()). Errors: none; what is gone meanwhile is left out.
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
  std::vector<std::string> problems;  // a text for each name that does not
};
// `held` are the files that the job's processes have.
[[nodiscard]] NamesAlone names_alone_of(const NameOwner& owner, const std::set<std::uint64_t>& held);

// Returns the mark for files that process `pid` makes. Empty: the process has ended.
[[nodiscard]] std::string mark_of_maker(pid_t pid);
// Returns the mark for files that an agent makes for a job.
[[nodiscard]] std::string mark_of_job(const std::string& job);
// Marks a file. `replaces`: a mark that is there is replaced. A file system without such attributes has no
// marks.
void set_mark(const std::string& path, const std::string& mark, bool replaces);

}  // namespace ckpt::agent::host
