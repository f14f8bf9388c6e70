// SPDX-License-Identifier: Apache-2.0
// System V shared memory, semaphores and message queues. They belong to the node's IPC namespace and have no
// owner but a user, so a move would lose them silently. These are the job's:
// - an object that a process of the job's PID namespace has made or used last, even if the process has ended.
//   The kernel names the process to a reader in that namespace, and shows 0 for all others;
// - an object of the job's user that nobody has used yet and that was made since the job started here, if no
//   other job of that user may have made it.
// A job without a PID namespace of its own has what its living processes have made or used last.
// Threads: any; reads files under /proc, and starts a process for a moment (offload()). Errors: none; what
// cannot be asked counts as not the job's.
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
  uid_t uid = 0;  // its maker's
  std::int64_t changed_unix_s = 0;
  int semaphores = 0;
  bool is_used = false;         // a process is known to have made or used it
  bool is_used_by_job = false;  // true: that process is one of the job
};

[[nodiscard]] bool is_of_job(const SystemVObject& object, const NameOwner& owner);

// Returns a text for each of the job's objects. Those whose memory the tree has mapped (`mapped`, by id) are
// left out.
[[nodiscard]] std::vector<std::string> system_v_of(const NameOwner& owner, const std::set<int>& mapped);

}  // namespace ckpt::agent::host
