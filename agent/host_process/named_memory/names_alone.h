// SPDX-License-Identifier: Apache-2.0
// Files in /dev/shm that a job has by name alone. It made them, no process has them open or mapped now, and it may open
// them again. Their owner is written on them, in an extended attribute. SharedFolderWatch writes the PID namespace of the
// maker, and an agent that makes files for a job writes the job. A file without a mark counts as the job's if its user
// made it since the job started here. That user must have no other job on this node; else the file is named.
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
  std::set<std::uint64_t> files;      // by inode; they travel
  std::vector<std::string> problems;  // a text for each name that does not
};
// `held`: files that the job's processes have.
[[nodiscard]] NamesAlone names_alone_of(const NameOwner& owner, const std::set<std::uint64_t>& held);

// The mark of what process `pid` makes. Empty: it is gone.
[[nodiscard]] std::string mark_of_maker(pid_t pid);
// The mark of what an agent makes for a job.
[[nodiscard]] std::string mark_of_job(const std::string& job);
// `replaces`: also where there is a mark. A folder without such attributes has no marks.
void set_mark(const std::string& path, const std::string& mark, bool replaces);

}  // namespace ckpt::agent::host
