// SPDX-License-Identifier: Apache-2.0
// Facts that distinguish a job's names on its node (in /dev/shm, System V, message queues) from the names of
// other jobs.
// Threads: any. The functions read files under /proc. Errors: none.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <limits>
#include <set>
#include <string>

namespace ckpt::agent::host {

inline constexpr std::int64_t kNeverMs = std::numeric_limits<std::int64_t>::max();

// The agent's facts about a job that identify the job's names.
struct NameRules {
  std::string job;  // text that distinguishes the job from all jobs of this machine
  std::int64_t started_unix_ms =
      0;  // start time of the job's instance on this node; 0 means that only names that a living process has
          // used
          // are the job's
  bool is_alone = false;  // true if no other job of its user runs on this node
};

struct NameOwner {
  std::string job;
  pid_t root = 0;
  std::set<pid_t> tree;
  uid_t uid = 0;
  std::int64_t since_unix_ms = kNeverMs;  // time at which the job began to run on this node
  bool is_alone = false;
};

// Returns the facts about the owner, the job with process `root`. An adopted job's process is older than the
// job's instance, so the earlier of the two start times counts.
[[nodiscard]] NameOwner name_owner(pid_t root, const NameRules& rules);

// Checks whether `root` has a PID namespace other than this process's.
[[nodiscard]] bool has_own_pid_namespace(pid_t root);

}  // namespace ckpt::agent::host
