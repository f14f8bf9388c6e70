// SPDX-License-Identifier: Apache-2.0
// System V shared memory, semaphores and message queues. They belong to the node's IPC namespace and have no owner but
// a user, so a move would lose them without a word. Which of them are the job's:
// - one that a process of the job's PID namespace has made or used last, also one that has ended: the kernel names it
//   to a look from within that namespace, and shows 0 for all others;
// - one that nobody has used yet, of the job's user and made since the job started here, where no other job of that
//   user might have made it.
// A job without a PID namespace of its own has what its living processes have made or used last.
// Threads: any; reads files under /proc, and starts a process for a moment (offload()). Errors: none; what cannot be
// asked counts as not the job's.
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
  uid_t uid = 0;  // that made it
  std::int64_t changed_unix_s = 0;
  int semaphores = 0;
  bool is_used = false;         // a process is known to have made or used it
  bool is_used_by_job = false;  // one of the job
};

[[nodiscard]] bool is_of_job(const SystemVObject& object, const NameOwner& owner);

// A text for each of the job's objects. Those whose memory the tree has mapped (`mapped`, by id) are left out.
[[nodiscard]] std::vector<std::string> system_v_of(const NameOwner& owner, const std::set<int>& mapped);

}  // namespace ckpt::agent::host
