// SPDX-License-Identifier: Apache-2.0
// Processes whose session is led from outside a PID namespace: this test's own grandchild in a new one.
#include "agent/host_process/process_tree.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace ckpt::agent::host {
namespace {

enum Exit { kMayMove = 0, kRefusedIt = 1, kNoNamespace = 2 };

// In the namespace: a process that leads no session of its own, or, with `own_session`, one that does.
Exit look_from_inside(bool own_session) {
  int ends[2];
  if (::pipe(ends) != 0) return kNoNamespace;
  const pid_t looked_at = ::fork();
  if (looked_at == 0) {
    if (own_session) ::setsid();
    (void)!::write(ends[1], "r", 1);
    for (;;) ::pause();
  }
  char ready = 0;
  if (::read(ends[0], &ready, 1) != 1) return kNoNamespace;
  const auto checked = check_sessions({looked_at});
  ::kill(looked_at, SIGKILL);
  if (checked.has_value()) return kMayMove;
  return checked.assume_error().code() == ErrorCode::kRefused ? kRefusedIt : kNoNamespace;
}

int exit_of(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int look_in_new_namespace(bool own_session) {
  const pid_t outer = ::fork();
  if (outer == 0) {
    if (::unshare(CLONE_NEWPID) != 0) ::_exit(kNoNamespace);
    const pid_t first = ::fork();
    if (first == 0) ::_exit(look_from_inside(own_session));
    ::_exit(exit_of(first));
  }
  return exit_of(outer);
}

TEST(Sessions, OneThatIsLedFromOutsideThePidNamespaceIsRefused) {
  const int from_outside = look_in_new_namespace(false);
  if (from_outside == kNoNamespace) GTEST_SKIP() << "no PID namespace can be made here";
  EXPECT_EQ(from_outside, kRefusedIt);
  EXPECT_EQ(look_in_new_namespace(true), kMayMove);
}

}  // namespace
}  // namespace ckpt::agent::host
