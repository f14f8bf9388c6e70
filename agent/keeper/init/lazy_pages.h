// SPDX-License-Identifier: Apache-2.0
// The memory of a restored program that runs before all its memory is present. A process of CRIU, the server,
// provides each page that the program accesses, and the other pages in the meantime. The kernel lets the
// program wait for a page (userfaultfd). After the server has exited, the kernel provides zeros instead.
// Therefore the caller traces the server (ptrace(2)). A server that is about to exit too early, for any
// reason, enters a ptrace stop first, with all its memory.
// Threads: one, always the same, as ptrace requires. Ownership: the server is a child of the caller, who
// waits for it. The server exits by itself. If the caller exits, the server continues. Errors: errors of
// ptrace.
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
    kWhole,  // all pages are present
    kLost,   // the server is stopped at its exit, or has exited; pages are missing
  };
  // Handles a wait status of the server from waitpid. The server continues after any stop except the one at
  // its exit.
  [[nodiscard]] State on_changed(int status);
  // Returns the wait status with which the server exits, after kLost.
  [[nodiscard]] int end_status() const { return end_status_; }
  // Lets the server exit. Call this function when no process is left that could read zeros.
  void let_end();

 private:
  explicit LazyPages(pid_t server) : server_(server) {}
  pid_t server_;
  int end_status_ = 0;
};

}  // namespace ckpt::keeper
