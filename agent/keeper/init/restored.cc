// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/init/restored.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <sstream>

#include "agent/keeper/init/own_namespaces.h"
#include "libckpt/base/fd.h"

namespace ckpt::keeper {
namespace {

constexpr int kNotStarted = 127;
constexpr std::size_t kMaxChildrenText = 1 << 20;

// Runs in the child, so the function calls only async-signal-safe functions.
[[noreturn]] void become_criu(char* const* argv, int log, int null, int pid_namespace, bool leaves_mounts) {
  for (int number = 1; number < NSIG; ++number) {
    if (number != SIGKILL && number != SIGSTOP) ::signal(number, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  constexpr int kAbove = kRestoredNamespaceFd + 1;
  const int high_log = ::fcntl(log, F_DUPFD, kAbove);
  const int high_null = ::fcntl(null, F_DUPFD, kAbove);
  const int high_namespace = pid_namespace < 0 ? -1 : ::fcntl(pid_namespace, F_DUPFD, kAbove);
  bool good = high_log >= 0 && high_null >= 0 && ::dup2(high_log, kRestoredLogFd) >= 0;
  for (int fd = 0; fd < 3; ++fd) good = good && ::dup2(high_null, fd) >= 0;
  if (pid_namespace >= 0) good = good && ::dup2(high_namespace, kRestoredNamespaceFd) >= 0;
  ::close_range(3, kRestoredLogFd - 1, 0);
  ::close_range(pid_namespace >= 0 ? kAbove : kRestoredNamespaceFd, ~0U, 0);
  good = good && (!leaves_mounts || leave_mounts_of_node());
  if (good) ::execv(argv[0], argv);
  ::_exit(kNotStarted);
}

Result<int> wait_for(pid_t child, std::chrono::milliseconds timeout) {
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  if (!process) return Error::from_errno("Cannot watch CRIU");
  pollfd ended{process.get(), POLLIN, 0};
  int ready = 0;
  do {
    ready = ::poll(&ended, 1, static_cast<int>(timeout.count()));
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) {
    return Error(ErrorCode::kTimedOut, "CRIU was still restoring the program after " +
                                           std::to_string(timeout.count()) + " ms and has been killed");
  }
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return Error::from_errno("Cannot wait for CRIU");
  return status;
}

// Kills CRIU itself and the program that CRIU has restored. The function also kills the orphans that then
// become children of this process.
void end_children() {
  for (;;) {
    const Result<std::string> children = read_file("/proc/thread-self/children", kMaxChildrenText);
    if (!children.has_value()) return;
    std::istringstream list(*children);
    for (pid_t child = 0; list >> child;) ::kill(child, SIGKILL);
    int status = 0;
    const pid_t changed = ::waitpid(-1, &status, 0);
    if (changed < 0 && errno != EINTR) return;
    // The server of missing pages enters a ptrace stop when it exits (lazy_pages.h), and a second SIGKILL
    // does not continue it.
    if (changed > 0 && WIFSTOPPED(status)) ::ptrace(PTRACE_CONT, changed, nullptr, nullptr);
  }
}

Result<pid_t> read_pid(const std::string& path) {
  CKPT_TRY(text, read_file(path, 64));
  pid_t pid = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), pid);
  if (parsed.ec != std::errc() || pid <= 1)
    return Error(ErrorCode::kIo, path + " does not contain a process id");
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
    return Error::from_errno("Process " + std::to_string(pid) + " of " + path +
                             " is not this keeper's child");
  }
  return pid;
}

// Waits until the command has exited. `failed` is the error message if the command did not succeed.
Result<void> run_command(const RestoreSpec& spec, const std::vector<std::string>& command, bool leaves_mounts,
                         const char* failed) {
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null) return Error::from_errno("Cannot open /dev/null");
  const pid_t child = ::fork();
  if (child < 0) return Error::from_errno("Cannot start " + command[0]);
  if (child == 0) become_criu(argv.data(), spec.log, null.get(), spec.pid_namespace, leaves_mounts);
  CKPT_TRY(status, wait_for(child, spec.timeout));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return ok();
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotStarted)
    return Error(ErrorCode::kIo, "Cannot run " + command[0]);
  return Error(ErrorCode::kIo, failed);
}

Result<RestoredProgram> restore_with(const RestoreSpec& spec) {
  RestoredProgram restored;
  if (!spec.lazy_pages.empty()) {
    ::unlink(spec.lazy_pages_pid_file.c_str());
    CKPT_TRYV(run_command(spec, spec.lazy_pages, false, "gpumigrate-lazy-pages could not start"));
    CKPT_TRY(server, read_pid(spec.lazy_pages_pid_file));
    CKPT_TRY(pages, LazyPages::create(server));
    restored.lazy_pages = std::move(pages);
  }
  ::unlink(spec.pid_file.c_str());
  CKPT_TRYV(run_command(spec, spec.command, spec.leaves_mounts, "CRIU could not restore the program"));
  CKPT_TRY(pid, read_pid(spec.pid_file));
  restored.pid = pid;
  return restored;
}

}  // namespace

Result<RestoredProgram> start_restored(const RestoreSpec& spec) {
  if (spec.command.empty()) return Error(ErrorCode::kInvalidArgument, "The restore command is missing");
  Result<RestoredProgram> restored = restore_with(spec);
  if (!restored.has_value()) end_children();
  return restored;
}

}  // namespace ckpt::keeper
