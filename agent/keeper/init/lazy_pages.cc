// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/init/lazy_pages.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

namespace ckpt::keeper {
namespace {

constexpr int kEventShift = 16;  // position of the event number in a wait status (ptrace(2))

}  // namespace

Result<LazyPages> LazyPages::create(pid_t server) {
  if (::ptrace(PTRACE_SEIZE, server, nullptr, PTRACE_O_TRACEEXIT) != 0)
    return Error::from_errno("Cannot watch the process that supplies a program's memory");
  return LazyPages(server);
}

LazyPages::State LazyPages::on_changed(int status) {
  end_status_ = status;
  if (!WIFSTOPPED(status))
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? State::kWhole : State::kLost;
  const int event = status >> kEventShift;
  if (event == PTRACE_EVENT_EXIT) {
    unsigned long how = 1;
    const bool is_known = ::ptrace(PTRACE_GETEVENTMSG, server_, nullptr, &how) == 0;
    end_status_ = static_cast<int>(how);
    if (!is_known || how != 0) return State::kLost;
    let_end();
  } else if (event == PTRACE_EVENT_STOP) {
    ::ptrace(PTRACE_LISTEN, server_, nullptr, nullptr);
  } else {
    ::ptrace(PTRACE_CONT, server_, nullptr, WSTOPSIG(status));
  }
  return State::kGoesOn;
}

void LazyPages::let_end() {
  ::ptrace(PTRACE_CONT, server_, nullptr, nullptr);
}

}  // namespace ckpt::keeper
