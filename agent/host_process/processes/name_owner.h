// SPDX-License-Identifier: Apache-2.0
// Facts that tell a job's names on its node (in /dev/shm, System V, message queues) from those of others.
// Threads: any; reads files under /proc. Errors: none.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <limits>
#include <set>
#include <string>

namespace ckpt::agent::host {

inline constexpr std::int64_t kNeverMs = std::numeric_limits<std::int64_t>::max();

// The facts that an agent knows of a job, by which its names are found.
struct NameRules {
  std::string job;  // tells it from all jobs of this machine
  std::int64_t started_unix_ms =
      0;  // its instance on this node; 0: only names that a living process has used are its own
  bool is_alone = false;  // no other job of its user runs on this node
};

struct NameOwner {
  std::string job;
  pid_t root = 0;
  std::set<pid_t> tree;
  uid_t uid = 0;
  std::int64_t since_unix_ms = kNeverMs;  // when the job began to run on this node
  bool is_alone = false;
};

// An adopted job's process is older than its instance.
[[nodiscard]] NameOwner name_owner(pid_t root, const NameRules& rules);

// True if it has a PID namespace other than this process's.
[[nodiscard]] bool has_own_pid_namespace(pid_t root);

}  // namespace ckpt::agent::host
