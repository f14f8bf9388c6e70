// SPDX-License-Identifier: Apache-2.0
// Holds a restored program while its context and its memory come back: only the threads that do that work
// run. So none of its own code has run here if that fails and the source goes on (ADR 25).
// The other threads of that process are traced: a SIGCONT does not continue them. The kernel kills them if
// this keeper ends first. Other processes of the tree stay stopped as CRIU left them.
// A thread may be held while it owns a lock that the work needs. So there is a limit, after which all go on.
// Threads: one, always the same, as ptrace(2) asks. Ownership: the traces; the destructor does nothing.
// Errors: of ptrace; kNotFound for a thread that is to work and is not there; kTimedOut for one that does not
// stop.
#pragma once

#include <sys/types.h>

#include <vector>

#include "agent/keeper/io/timer.h"
#include "agent/keeper/rank/rank_process.h"
#include "libckpt/base/clock.h"
#include "libckpt/base/result.h"

namespace ckpt::keeper {

class ThreadHold {
 public:
  ThreadHold(RankProcess& process, Timer limit) : process_(process), limit_(std::move(limit)) {}

  // Holds `pid`, a stopped process of the job, without its threads `workers`. On failure nothing is held.
  [[nodiscard]] Result<void> take(pid_t pid, const std::vector<pid_t>& workers, Nanos limit_ns);
  // Lets the job run; while it is held only the workers do.
  void go_on();
  // Ends the hold. All run at once with `may_run`, else at the next go_on().
  void end(bool may_run);
  // Called when nothing is left to hold.
  void on_exited();

  [[nodiscard]] bool is_held() const { return held_pid_ != 0; }
  [[nodiscard]] int fd() const { return limit_.fd(); }
  // Returns true if the limit has passed.
  [[nodiscard]] bool take_due() { return limit_.take_due(); }

 private:
  Result<void> stop_all();
  void detach_all();
  void release();

  RankProcess& process_;
  Timer limit_;
  pid_t held_pid_ = 0;  // 0: none
  bool is_ending_ = false;
  std::vector<pid_t> threads_;  // traced
};

// Returns the ids of a process's threads; empty if it is gone.
[[nodiscard]] std::vector<pid_t> threads_of(pid_t pid);

}  // namespace ckpt::keeper
