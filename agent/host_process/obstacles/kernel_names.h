// SPDX-License-Identifier: Apache-2.0
// System V shared memory, semaphores and message queues. These objects belong to the node's IPC namespace and
// have only a user as owner, so a move would lose them silently. The following objects are the job's:
// - an object that a process of the job's PID namespace has created or used last, even if the process has
//   exited.
//   The kernel names the process to a reader in that namespace, and shows 0 for all other processes;
// - an object of the job's user that no process has used yet and that was created since the job started here,
//   if no other job of that user may have created it.
// A job without its own PID namespace owns the objects that its living processes have created or used last.
// Threads: any. The function reads files under /proc, and briefly starts a process (use offload()). Errors:
// none. An object that cannot be queried does not count as the job's.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "agent/host_process/processes/name_owner.h"

namespace ckpt::agent::host {

struct SystemVObject {
  enum class Kind : std::uint8_t { kMemory, kSemaphores, kQueue };
  Kind kind = Kind::kMemory;
  int id = 0;
  long key = 0;
  uid_t uid = 0;  // user id of the object's creator
  std::int64_t changed_unix_s = 0;
  int semaphores = 0;
  bool is_used = false;         // true if a process is known to have created or used the object
  bool is_used_by_job = false;  // true if a process of the job has created or used the object
};

[[nodiscard]] bool is_of_job(const SystemVObject& object, const NameOwner& owner);

// Returns a text for each of the job's objects. The function leaves out objects whose memory the tree has
// mapped (`mapped`, by id).
[[nodiscard]] std::vector<std::string> system_v_of(const NameOwner& owner, const std::set<int>& mapped);

}  // namespace ckpt::agent::host
