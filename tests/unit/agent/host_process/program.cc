// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/agent/host_process/program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "agent/keeper/init/pid_namespace.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent::host {
namespace {

[[noreturn]] void become_init(const std::vector<char*>& argv, const std::string& folder, int log,
                              int report) {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int null = ::open("/dev/null", O_RDONLY);
  const int high_report = ::fcntl(report, F_DUPFD, 20);
  bool good = ::chdir(folder.c_str()) == 0 && ::dup2(null, 0) == 0 && ::dup2(log, 1) == 1 &&
              ::dup2(log, 2) == 2 && ::dup2(high_report, 3) == 3;
  ::close_range(4, ~0U, 0);
  if (good) ::execv(argv[0], argv.data());
  ::_exit(126);
}

std::string find_line(const std::string& log, const std::string& start) {
  std::ifstream file(log);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(start) && !file.eof()) return line;
  }
  return {};
}

}  // namespace

Result<pid_t> start_program(const std::vector<std::string>& argv, const std::string& folder,
                            const std::string& log) {
  std::vector<std::string> words{INIT_PROGRAM, "--report", "3", "--"};
  words.insert(words.end(), argv.begin(), argv.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const UniqueFd output(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!output) return Error::from_errno("Opening " + log);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error::from_errno("Making a pipe");
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  CKPT_TRY(init, keeper::fork_into_pid_namespace());
  if (init == 0) become_init(pointers, folder, output.get(), write_end.get());
  write_end.reset();
  int error_number = 0;
  if (::read(read_end.get(), &error_number, sizeof error_number) ==
      static_cast<ssize_t>(sizeof error_number)) {
    ::waitpid(init, nullptr, 0);
    return Error::from_errno(error_number, "Starting " + argv[0]);
  }
  return init;
}

std::string wait_for_line(const std::string& log, const std::string& start, pid_t alive) {
  const UniqueFd watch(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  ::inotify_add_watch(watch.get(), log.c_str(), IN_MODIFY);
  for (;;) {
    if (std::string line = find_line(log, start); !line.empty()) return line;
    siginfo_t ended{};
    ::waitid(P_PID, static_cast<id_t>(alive), &ended, WEXITED | WNOHANG | WNOWAIT);
    if (ended.si_pid == alive) return {};
    pollfd ready{watch.get(), POLLIN, 0};
    if (::poll(&ready, 1, 60000) <= 0) return {};
    char events[4096];
    (void)!::read(watch.get(), events, sizeof events);
  }
}

int wait_for_end(pid_t init) {
  siginfo_t ended{};
  ::waitid(P_PID, static_cast<id_t>(init), &ended, WEXITED | WNOWAIT);
  const int status = ended.si_code == CLD_EXITED ? ended.si_status << 8 : ended.si_status;
  const int of_program = keeper::program_status(init, status);
  ::waitpid(init, nullptr, 0);
  return of_program;
}

char process_state(pid_t pid) {
  const Result<std::string> stat = read_file("/proc/" + std::to_string(pid) + "/stat", 4096);
  if (!stat.has_value()) return 'X';
  const std::size_t name_end = stat->rfind(')');
  return (*stat)[name_end + 2];
}

}  // namespace ckpt::agent::host
