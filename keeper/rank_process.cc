// SPDX-License-Identifier: Apache-2.0
#include "keeper/rank_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <vector>

#include "libckpt/base/fd.h"

namespace ckpt::keeper {
namespace {

struct Prepared {
  std::vector<char*> argv;
  std::vector<std::string> env_text;
  std::vector<char*> env;
  UniqueFd input;
  UniqueFd log;
};

Result<Prepared> prepare(const Config& config, const std::string& socket_path, const std::string& log_path) {
  Prepared prepared;
  for (const std::string& word : config.argv) prepared.argv.push_back(const_cast<char*>(word.c_str()));
  prepared.argv.push_back(nullptr);
  for (const auto& [key, value] : config.env) {
    if (key != "CKPT_SOCKET" && key != "CKPT_RANK") prepared.env_text.push_back(key + "=" + value);
  }
  prepared.env_text.push_back("CKPT_SOCKET=" + socket_path);
  prepared.env_text.push_back("CKPT_RANK=0");
  for (std::string& text : prepared.env_text) prepared.env.push_back(text.data());
  prepared.env.push_back(nullptr);
  prepared.input.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!prepared.input) return Error::from_errno("Opening /dev/null");
  // A file, not a pipe: the program must not die or block because a reader went away.
  prepared.log.reset(::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!prepared.log) return Error::from_errno("Opening " + log_path);
  return prepared;
}

void reset_signals() {
  for (int number = 1; number < NSIG; ++number) {
    if (number != SIGKILL && number != SIGSTOP) ::signal(number, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// In the child, after fork. Which step failed goes to the parent with errno.
enum class Step : int { kFolder = 1, kDescriptors, kExec, kOrphaned };
struct Failure {
  Step step;
  int error_number;
};

[[noreturn]] void become_program(const Config& config, Prepared& prepared, int report, pid_t keeper) {
  const auto give_up = [report](Step step) {
    const Failure failure{step, errno};
    (void)!::write(report, &failure, sizeof failure);
    ::_exit(127);
  };
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != keeper) give_up(Step::kOrphaned);
  reset_signals();
  if (::chdir(config.cwd.c_str()) != 0) give_up(Step::kFolder);
  if (::dup2(prepared.input.get(), 0) < 0 || ::dup2(prepared.log.get(), 1) < 0 ||
      ::dup2(prepared.log.get(), 2) < 0) {
    give_up(Step::kDescriptors);
  }
  if (::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) != 0) give_up(Step::kDescriptors);
  ::environ = prepared.env.data();  // execvp searches the program's own PATH
  ::execvp(prepared.argv[0], prepared.argv.data());
  give_up(Step::kExec);
  std::abort();
}

Error to_error(const Failure& failure, const Config& config) {
  switch (failure.step) {
    case Step::kFolder:
      return Error::from_errno(failure.error_number, "Going to the job's folder " + config.cwd);
    case Step::kExec:
      return Error::from_errno(failure.error_number, "Starting the program " + config.argv.front());
    default:
      return Error::from_errno(failure.error_number, "Preparing the job's process");
  }
}

}  // namespace

Result<RankProcess> RankProcess::start(const Config& config, const std::string& socket_path,
                                       const std::string& log_path) {
  CKPT_TRY(prepared, prepare(config, socket_path, log_path));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error::from_errno("Making a pipe");
  UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const pid_t keeper = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return Error::from_errno("Starting a process for the job");
  if (child == 0) become_program(config, prepared, write_end.get(), keeper);
  ::setpgid(child, child);  // also here: whichever comes first, it is done when start() returns
  write_end.reset();
  Failure failure{};
  ssize_t got = 0;
  do {
    got = ::read(read_end.get(), &failure, sizeof failure);
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof failure)) {
    ::waitpid(child, nullptr, 0);
    return to_error(failure, config);
  }
  return RankProcess(child, start_ticks_of(child));
}

bool RankProcess::contains(pid_t pid) const {
  return pid == pid_ || ::getpgid(pid) == pid_;
}

void RankProcess::signal_group(int signal) const {
  ::kill(-pid_, signal);
}

std::uint64_t start_ticks_of(pid_t pid) {
  const Result<std::string> stat = read_file("/proc/" + std::to_string(pid) + "/stat", 4096);
  if (!stat.has_value()) return 0;
  const std::string& text = stat.assume_value();
  std::size_t at = text.rfind(')');  // the name before it may hold anything
  if (at == std::string::npos) return 0;
  for (int field = 2; field < 22; ++field) {
    at = text.find(' ', at + 1);
    if (at == std::string::npos) return 0;
  }
  return std::strtoull(text.c_str() + at + 1, nullptr, 10);
}

}  // namespace ckpt::keeper
