// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/local/processes.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

extern char** environ;

namespace ckpt::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<char*> pointers_of(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Replaces the child process after fork by the program. It makes only async-signal-safe calls, and reports
// errno through `failure`.
[[noreturn]] void become(char* const* argv, char* const* environment, int null, int output, int failure) {
  ::setsid();
  ::dup2(null, 0);
  ::dup2(output, 1);
  ::dup2(output, 2);
  // The pipe closes at exec, and the child inherits no other descriptors.
  ::dup3(failure, 3, O_CLOEXEC);
  ::close_range(4, ~0u, 0);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(argv[0], argv, environment);
  const int error = errno;
  (void)!::write(3, &error, sizeof error);
  ::_exit(127);
}

}  // namespace

ProcessId identify(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::stringstream content;
  content << file.rdbuf();
  const std::string text = content.str();
  // The name in brackets may contain any character. After the last bracket the first field is the state, and
  // the 20th is the start time.
  const std::size_t bracket = text.rfind(')');
  if (bracket == std::string::npos) return {};
  std::istringstream fields(text.substr(bracket + 1));
  std::string state;
  fields >> state;
  std::string skipped;
  for (int i = 0; i < 18; i++) fields >> skipped;
  ProcessId process{pid, 0};
  fields >> process.start;
  if (!fields || state == "Z" || state == "X") return {};
  return process;
}

bool is_alive(const ProcessId& process) {
  return process.pid > 0 && identify(process.pid) == process;
}

Result<ProcessId> start_daemon(const DaemonSpec& spec) {
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const UniqueFd output(::open(spec.output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!null || !output) return Error::from_errno("Opening " + spec.output);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error::from_errno("Making a pipe");
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const std::vector<char*> argv = pointers_of(spec.argv);
  const std::vector<char*> environment = pointers_of(spec.environment);
  const pid_t pid = ::fork();
  if (pid < 0) return Error::from_errno("Starting " + spec.argv[0]);
  if (pid == 0) become(argv.data(), environment.data(), null.get(), output.get(), writer.get());
  writer.reset();
  int error = 0;
  ssize_t got = 0;
  while ((got = ::read(reader.get(), &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (got == sizeof error) {
    ::waitpid(pid, nullptr, 0);
    return Error::from_errno(error, "Starting " + spec.argv[0]);
  }
  return identify(pid);
}

Result<UniqueFd> watch_end(const ProcessId& process) {
  UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
  if (!fd) return Error::from_errno("Watching process " + std::to_string(process.pid));
  return fd;
}

namespace {

Result<void> wait_by_poll(int descriptor, std::chrono::milliseconds time) {
  pollfd poll{descriptor, POLLIN, 0};
  while (::poll(&poll, 1, static_cast<int>(time.count())) < 0 && errno == EINTR) {
  }
  return ok();
}

// Waits until the process has exited. Returns false if the process still runs at the deadline. `wait` may
// return early.
Result<bool> wait_for_end(const ProcessId& process, Clock::time_point deadline, const WaitReadable& wait) {
  const auto fd = watch_end(process);
  for (;;) {
    ::waitpid(process.pid, nullptr, WNOHANG);  // reaps the process if it is a child of this command
    if (!is_alive(process)) return true;
    const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (!fd || time.count() <= 0) return false;
    CKPT_TRYV(wait(fd->get(), time));
  }
}

// Waits until all processes have exited or `patience` is over. Returns the processes that still run.
Result<std::vector<ProcessId>> wait_for_ends(const std::vector<ProcessId>& processes,
                                             std::chrono::milliseconds patience, const WaitReadable& wait) {
  const Clock::time_point deadline = Clock::now() + patience;
  std::vector<ProcessId> left;
  for (const ProcessId& process : processes) {
    CKPT_TRY(ended, wait_for_end(process, deadline, wait));
    if (!ended) left.push_back(process);
  }
  return left;
}

}  // namespace

Result<void> end_all(const std::vector<ProcessId>& processes, int signal, std::chrono::milliseconds patience,
                     const WaitReadable& wait) {
  constexpr std::chrono::milliseconds kAfterKill{5000};
  for (const ProcessId& process : processes) {
    if (is_alive(process)) ::kill(process.pid, signal);
  }
  const WaitReadable by = wait ? wait : wait_by_poll;
  CKPT_TRY(left, wait_for_ends(processes, patience, by));
  for (const ProcessId& process : left) ::kill(process.pid, SIGKILL);
  CKPT_TRY(killed, wait_for_ends(left, kAfterKill, by));
  left = std::move(killed);
  if (left.empty()) return ok();
  return Error(ErrorCode::kTimedOut,
               "Process " + std::to_string(left[0].pid) + " still runs 5 s after SIGKILL");
}

std::vector<ProcessId> find_by_environment(const std::string& entry) {
  std::vector<ProcessId> found;
  std::error_code error;
  for (const auto& folder : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = folder.path().filename();
    pid_t pid = 0;
    const auto [end, failure] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (failure != std::errc{} || end != name.data() + name.size() || pid == ::getpid()) continue;
    std::ifstream file(folder.path() / "environ");
    std::string variable;
    while (std::getline(file, variable, '\0')) {
      if (variable != entry) continue;
      const ProcessId process = identify(pid);
      if (process.pid != 0) found.push_back(process);
      break;
    }
  }
  return found;
}

std::vector<std::string> environment_with(const std::vector<std::string>& additions) {
  std::vector<std::string> environment;
  const auto name_of = [](const std::string& entry) { return entry.substr(0, entry.find('=')); };
  for (char** entry = environ; *entry != nullptr; entry++) {
    const std::string name = name_of(*entry);
    const bool replaced =
        std::any_of(additions.begin(), additions.end(), [&](const auto& a) { return name_of(a) == name; });
    if (!replaced) environment.emplace_back(*entry);
  }
  environment.insert(environment.end(), additions.begin(), additions.end());
  return environment;
}

Result<std::string> program_folder() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Error(ErrorCode::kIo, "Cannot read /proc/self/exe: " + error.message());
  return program.parent_path().string();
}

}  // namespace ckpt::cli
