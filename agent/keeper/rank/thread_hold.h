// SPDX-License-Identifier: Apache-2.0
// Holds a restored program while its context and its memory are restored. Only the threads that do this work
// run. Therefore none of the program's own code has run here if the work fails and the source continues (ADR
// 25). The other threads of the process are traced, so a SIGCONT does not continue them. The kernel kills the
// threads if this keeper exits first. Other processes of the tree stay stopped as CRIU left them. A held
// thread may own a lock that the work needs. Therefore a limit exists, after which all threads continue.
// Threads: one, always the same, as ptrace(2) requires. Ownership: the traces. The destructor does nothing.
// Errors: errors of ptrace. kNotFound for a worker thread that does not exist. kTimedOut for a thread that
// does not stop.
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

  // Holds `pid`, a stopped process of the job, except its threads `workers`. After a failure no thread is
  // held.
  [[nodiscard]] Result<void> acquire(pid_t pid, const std::vector<pid_t>& workers, Nanos limit_ns);
  // Lets the job run. While it is held, only the workers run.
  void go_on();
  // Ends the hold. All threads run at once with `may_run`, or else at the next go_on().
  void end(bool may_run);
  // Handles the exit of the program, after which nothing is left to hold.
  void on_exited();

  [[nodiscard]] bool is_held() const { return held_pid_ != 0; }
  [[nodiscard]] int fd() const { return limit_.fd(); }
  // Returns true if the limit of the hold has expired.
  [[nodiscard]] bool consume_expiry() { return limit_.consume_expiry(); }

 private:
  Result<void> stop_all();
  void detach_all();
  void release();

  RankProcess& process_;
  Timer limit_;
  pid_t held_pid_ = 0;  // id of the held process; 0 if there is none
  bool is_ending_ = false;
  std::vector<pid_t> threads_;  // ids of the traced threads
};

// Returns the ids of a process's threads. The result is empty if the process no longer exists.
[[nodiscard]] std::vector<pid_t> threads_of(pid_t pid);

}  // namespace ckpt::keeper
