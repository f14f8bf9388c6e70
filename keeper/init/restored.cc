// SPDX-License-Identifier: Apache-2.0
#include "keeper/init/restored.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "libckpt/base/fd.h"

namespace ckpt::keeper {
namespace {

constexpr int kNotStarted = 127;

// In the child: async-signal-safe calls only.
[[noreturn]] void become_criu(char* const* argv, int log, int null) {
  for (int number = 1; number < NSIG; ++number) {
    if (number != SIGKILL && number != SIGSTOP) ::signal(number, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int high_log = ::fcntl(log, F_DUPFD, kRestoredLogFd + 2);
  const int high_null = ::fcntl(null, F_DUPFD, kRestoredLogFd + 2);
  bool good = high_log >= 0 && high_null >= 0 && ::dup2(high_log, kRestoredLogFd) >= 0;
  for (int fd = 0; fd < 3; ++fd) good = good && ::dup2(high_null, fd) >= 0;
  ::close_range(3, kRestoredLogFd - 1, 0);
  ::close_range(kRestoredLogFd + 1, ~0U, 0);
  if (good) ::execv(argv[0], argv);
  ::_exit(kNotStarted);
}

Result<int> wait_for(pid_t child) {
  int status = 0;
  pid_t ended = 0;
  do {
    ended = ::waitpid(child, &status, 0);
  } while (ended < 0 && errno == EINTR);
  if (ended < 0) return Error::from_errno("Waiting for CRIU");
  return status;
}

Result<pid_t> read_pid(const std::string& path) {
  CKPT_TRY(text, read_file(path, 64));
  pid_t pid = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), pid);
  if (parsed.ec != std::errc() || pid <= 1) return Error(ErrorCode::kIo, path + " holds no process id");
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
    return Error::from_errno("The restored process " + std::to_string(pid) + " is not this keeper's child");
  }
  return pid;
}

}  // namespace

Result<pid_t> start_restored(const RestoreSpec& spec) {
  if (spec.command.empty()) return Error(ErrorCode::kInvalidArgument, "No command to restore with");
  std::vector<char*> argv;
  for (const std::string& word : spec.command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null) return Error::from_errno("Opening /dev/null");
  ::unlink(spec.pid_file.c_str());
  const pid_t child = ::fork();
  if (child < 0) return Error::from_errno("Starting " + spec.command[0]);
  if (child == 0) become_criu(argv.data(), spec.log, null.get());
  CKPT_TRY(status, wait_for(child));
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    const bool started = !WIFEXITED(status) || WEXITSTATUS(status) != kNotStarted;
    return Error(ErrorCode::kIo,
                 started ? "CRIU could not restore the program" : "Cannot run " + spec.command[0]);
  }
  return read_pid(spec.pid_file);
}

}  // namespace ckpt::keeper
