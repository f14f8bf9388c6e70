// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/init/holder.h"

#include <fcntl.h>
#include <unistd.h>

#include "agent/keeper/init/pid_namespace.h"

namespace ckpt::keeper {
namespace {

constexpr int kNotStarted = 127;

// Runs in the child, so the function calls only async-signal-safe functions.
[[noreturn]] void become_holder(const char* init, int alive, int null) {
  ::setsid();
  const bool good = ::dup2(alive, 0) >= 0 && ::dup2(null, 1) >= 0 && ::dup2(null, 2) >= 0;
  ::close_range(3, ~0U, 0);
  if (good) ::execl(init, "gpumigrate-init", "--hold", static_cast<char*>(nullptr));
  ::_exit(kNotStarted);
}

}  // namespace

Result<NamespaceHolder> hold_pid_namespace(const std::string& init) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error::from_errno("Cannot create a pipe");
  const UniqueFd read_end(ends[0]);
  NamespaceHolder holder;
  holder.alive.reset(ends[1]);
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null) return Error::from_errno("Cannot open /dev/null");
  CKPT_TRY(child, fork_into_pid_namespace());
  if (child == 0) become_holder(init.c_str(), read_end.get(), null.get());
  const std::string path = "/proc/" + std::to_string(child) + "/ns/pid";
  holder.pid_namespace.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!holder.pid_namespace) return Error::from_errno("Cannot open " + path);
  return holder;
}

}  // namespace ckpt::keeper
