// SPDX-License-Identifier: Apache-2.0
#include "agent/io/process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <map>

extern char** environ;

namespace ckpt::agent {
namespace {

std::vector<std::string> merged_environment(const std::vector<std::string>& additions) {
  std::map<std::string, std::string> merged;
  const auto add = [&merged](const std::string& entry) {
    if (const auto at = entry.find('='); at != std::string::npos)
      merged[entry.substr(0, at)] = entry.substr(at + 1);
  };
  for (char** entry = environ; *entry; ++entry) add(*entry);
  for (const std::string& entry : additions) add(entry);
  std::vector<std::string> list;
  list.reserve(merged.size());
  for (const auto& [key, value] : merged) list.push_back(key + "=" + value);
  return list;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> list;
  list.reserve(texts.size() + 1);
  for (const std::string& text : texts) list.push_back(const_cast<char*>(text.c_str()));
  list.push_back(nullptr);
  return list;
}

constexpr std::chrono::milliseconds kTracerPause{20};

struct ChildPlan {
  char* const* argv;
  char* const* environment;
  int null;
  int output;
  int inherited;
  int report;  // descriptor for the errno of a failed exec; a successful exec closes it
  bool own_session;
};

// Runs in the child between fork and exec, so the function calls only async-signal-safe functions.
[[noreturn]] void become(const ChildPlan& plan) {
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  ::signal(SIGXFSZ, SIG_DFL);
  if (plan.own_session) ::setsid();
  // The source descriptors are first duplicated above 0-4, so that no dup2 overwrites one of them. dup2
  // clears close-on-exec.
  const int null = ::fcntl(plan.null, F_DUPFD, 16);
  const int output = ::fcntl(plan.output, F_DUPFD, 16);
  const int inherited = plan.inherited >= 0 ? ::fcntl(plan.inherited, F_DUPFD, 16) : -1;
  const int report = ::fcntl(plan.report, F_DUPFD, 16);
  bool good = null >= 0 && output >= 0 && report >= 0 && (plan.inherited < 0 || inherited >= 0);
  good = good && ::dup2(null, 0) >= 0 && ::dup2(output, 1) >= 0 && ::dup2(output, 2) >= 0;
  if (inherited >= 0) {
    good = good && ::dup2(inherited, 3) >= 0;
  } else {
    ::close(3);
  }
  good = good && ::dup3(report, 4, O_CLOEXEC) >= 0;
  ::syscall(SYS_close_range, 5u, ~0u, 0u);
  if (good) ::execve(plan.argv[0], plan.argv, plan.environment);
  const int error_number = errno;
  [[maybe_unused]] const ssize_t told = ::write(4, &error_number, sizeof error_number);
  ::_exit(127);
}

}  // namespace

ChildProcess::ChildProcess(const asio::any_io_executor& executor, pid_t pid, int pidfd,
                           std::function<void(int)> ended)
    : pid_(pid), pidfd_(executor, pidfd), again_(executor), ended_(std::move(ended)) {}

Result<std::shared_ptr<ChildProcess>> ChildProcess::start(const asio::any_io_executor& executor,
                                                          const ProcessSpec& spec,
                                                          std::function<void(int)> ended) {
  const std::vector<std::string> environment = merged_environment(spec.environment);
  const std::vector<char*> argv = pointers(spec.argv);
  const std::vector<char*> env = pointers(environment);
  UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null) return Error::from_errno("Cannot open /dev/null");
  UniqueFd output(::open(spec.output_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!output) return Error::from_errno("Cannot open " + spec.output_path);
  int pipe_ends[2];
  if (::pipe2(pipe_ends, O_CLOEXEC) < 0) return Error::from_errno("Cannot create a pipe");
  UniqueFd reader(pipe_ends[0]);
  UniqueFd writer(pipe_ends[1]);

  const ChildPlan plan{argv.data(),    env.data(),   null.get(),      output.get(),
                       spec.inherited, writer.get(), spec.own_session};
  const pid_t pid = ::fork();
  if (pid < 0) return Error::from_errno("Cannot fork for " + spec.argv[0]);
  if (pid == 0) become(plan);

  writer.reset();
  int error_number = 0;
  ssize_t got;
  do {
    got = ::read(reader.get(), &error_number, sizeof error_number);
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof error_number)) {
    ::waitpid(pid, nullptr, 0);
    return Error::from_errno(error_number, "Cannot start " + spec.argv[0]);
  }
  const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (pidfd < 0) {
    Error error = Error::from_errno("Cannot watch " + spec.argv[0]);
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return error;
  }
  std::shared_ptr<ChildProcess> child(new ChildProcess(executor, pid, pidfd, std::move(ended)));
  child->watch();
  return child;
}

void ChildProcess::watch() {
  pidfd_.async_wait(asio::posix::stream_descriptor::wait_read,
                    [self = shared_from_this()](boost::system::error_code error) {
                      if (!error) self->check_exit();
                    });
}

// Checks whether the process has exited. Asio may report a descriptor that is not readable, because it stores
// events by descriptor numbers, which are reused. A process that has exited cannot be reaped while a tracer
// is attached to it.
void ChildProcess::check_exit() {
  int status = 0;
  pid_t ended = 0;
  do {
    ended = ::waitpid(pid_, &status, WNOHANG);
  } while (ended < 0 && errno == EINTR);
  if (ended != 0) return end(status);
  pollfd watched{pidfd_.native_handle(), POLLIN, 0};
  if (::poll(&watched, 1, 0) == 0) return watch();
  again_.expires_after(kTracerPause);
  again_.async_wait([self = shared_from_this()](boost::system::error_code error) {
    if (!error) self->check_exit();
  });
}

void ChildProcess::end(int status) {
  running_ = false;
  boost::system::error_code ignored;
  pidfd_.close(ignored);
  if (auto ended = std::move(ended_)) ended(status);
}

void ChildProcess::signal(int number) const {
  if (running_) ::kill(pid_, number);
}

std::string describe_wait_status(int status) {
  if (WIFSIGNALED(status)) {
    const char* name = ::strsignal(WTERMSIG(status));
    return "signal " + std::to_string(WTERMSIG(status)) + " (" + (name ? name : "unknown") + ")";
  }
  return "exit status " + std::to_string(WEXITSTATUS(status));
}

Result<std::string> program_folder() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0) return Error::from_errno("Cannot find the folder of this program");
  const std::string text(path, static_cast<std::size_t>(length));
  return text.substr(0, text.rfind('/'));
}

}  // namespace ckpt::agent
