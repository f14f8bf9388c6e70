// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/init/pid_namespace.h"

#include <linux/sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "agent/keeper/init/init_words.h"
#include "libckpt/base/fd.h"

namespace ckpt::keeper {
namespace {

constexpr int kSignalBase = 128;
constexpr std::size_t kMaxProcText = 4096;

std::string proc_path(pid_t pid, const char* rest) {
  return "/proc/" + std::to_string(pid) + rest;
}

}  // namespace

Result<pid_t> fork_into_pid_namespace() {
  clone_args arguments{};
  arguments.flags = CLONE_NEWPID;
  arguments.exit_signal = SIGCHLD;
  const long pid = ::syscall(SYS_clone3, &arguments, sizeof arguments);
  if (pid >= 0) return static_cast<pid_t>(pid);
  if (errno == EPERM || errno == ENOSYS) {
    return Error(ErrorCode::kNotSupported, ErrorDomain::kErrno, errno,
                 "Creating a PID namespace for the job requires root (CAP_SYS_ADMIN)");
  }
  return Error::from_errno("Cannot start a process for the job");
}

int program_status(pid_t init, int init_status) {
  const Result<std::string> name = read_file(proc_path(init, "/comm"), kMaxProcText);
  if (!name.has_value()) return init_status;
  const auto number_after = [&name](std::string_view word) -> std::optional<int> {
    if (!name->starts_with(word)) return std::nullopt;
    return static_cast<int>(std::strtol(name->c_str() + word.size(), nullptr, 10));
  };
  // The init was killed while it waited for processes that the program has left behind.
  if (const auto code = number_after(kExitName)) return WIFSIGNALED(init_status) ? *code << 8 : init_status;
  const auto killed_by = number_after(kSignalName);
  if (!killed_by) return init_status;
  const bool tells_it = WIFSIGNALED(init_status) ||
                        (WIFEXITED(init_status) && WEXITSTATUS(init_status) == kSignalBase + *killed_by);
  return tells_it ? *killed_by : init_status;
}

pid_t program_of(pid_t init) {
  // The first child is the oldest. Orphans that the init adopts come after the first child.
  const Result<std::string> children =
      read_file(proc_path(init, "/task/") + std::to_string(init) + "/children", kMaxProcText);
  if (!children.has_value()) return 0;
  return static_cast<pid_t>(std::strtol(children->c_str(), nullptr, 10));
}

}  // namespace ckpt::keeper
