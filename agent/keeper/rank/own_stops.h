// SPDX-License-Identifier: Apache-2.0
// Processes that the job has stopped itself (SIGSTOP, SIGTSTP, ...). A keeper that stops the job and lets it go on, or
// lets a restored one go on, leaves them stopped.
// Threads: one. Ownership: no process. Errors: none; what has ended is left out.
#pragma once

#include <sys/types.h>

#include <set>
#include <vector>

#include "agent/keeper/rank/rank_process.h"

namespace ckpt::keeper {

class OwnStops {
 public:
  // Before the keeper stops the job.
  void note(const RankProcess& process);
  // Of a restored tree, in which all are stopped: by their ids in the job's PID namespace.
  void note_restored(pid_t root, const std::vector<pid_t>& in_namespace);
  // SIGCONT to all others, children first: none of them is to meet a parent that saw them stopped.
  void go_on(const RankProcess& process);
  // The same, of the tree of its first process only.
  void go_on_tree(pid_t root);

 private:
  std::set<pid_t> stopped_;
};

}  // namespace ckpt::keeper
