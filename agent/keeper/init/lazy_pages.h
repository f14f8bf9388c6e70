// SPDX-License-Identifier: Apache-2.0
// The memory of a restored program that runs before all of it is there. A process of CRIU, the server, brings
// each page that the program touches, and the others beside that. The kernel makes the program wait until
// then (userfaultfd). It gives zeros instead once the server is gone. So the caller traces the server
// (ptrace(2)): one that is about to end too early, for whatever reason, stops first, with all that it holds.
// Threads: one, always the same, as ptrace asks. Ownership: the server is a child of the caller, who waits
// for it; it ends by itself. If the caller ends, the server goes on. Errors: of ptrace.
#pragma once

#include <sys/types.h>

#include "libckpt/base/result.h"

namespace ckpt::keeper {

class LazyPages {
 public:
  // Traces `server`, which waits for a restore.
  static Result<LazyPages> create(pid_t server);

  [[nodiscard]] pid_t server() const { return server_; }

  enum class State {
    kGoesOn,
    kWhole,  // all pages are there
    kLost,   // it is stopped at its end, or has ended; pages are missing
  };
  // Takes a status of the server from waitpid. A stop that is not its end is undone.
  [[nodiscard]] State on_changed(int status);
  // Returns the wait status with which the server ends, after kLost.
  [[nodiscard]] int end_status() const { return end_status_; }
  // Called when no process is left that could read zeros.
  void let_end();

 private:
  explicit LazyPages(pid_t server) : server_(server) {}
  pid_t server_;
  int end_status_ = 0;
};

}  // namespace ckpt::keeper
