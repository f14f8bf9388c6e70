// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/jobs/command.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace ckpt::bench {
namespace {

constexpr std::size_t kPiece = 65536;
constexpr std::size_t kShownBytes = 2000;  // maximum number of bytes of the command's messages in an error

std::vector<char*> pointers_of(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

struct Pipe {
  UniqueFd reader;
  UniqueFd writer;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error::from_errno("Making a pipe");
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

int exit_code_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// The two attribute objects of posix_spawn, which are released together.
struct SpawnPlan {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  SpawnPlan() {
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawnattr_init(&attributes);
  }
  ~SpawnPlan() {
    ::posix_spawn_file_actions_destroy(&files);
    ::posix_spawnattr_destroy(&attributes);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;
};

}  // namespace

Result<std::unique_ptr<Interrupts>> Interrupts::create() {
  std::unique_ptr<Interrupts> interrupts(new Interrupts());
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&signals, signal);
  interrupts->fd_.reset(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!interrupts->fd_) return Error::from_errno("Making a signalfd");
  if (const int error = ::pthread_sigmask(SIG_BLOCK, &signals, &interrupts->before_); error != 0)
    return Error::from_errno(error, "Blocking signals");
  return interrupts;
}

Interrupts::~Interrupts() {
  if (!fd_) return;
  if (taken_ != 0) ::raise(taken_);
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void Interrupts::take() {
  signalfd_siginfo info{};
  while (::read(fd_.get(), &info, sizeof info) == sizeof info) taken_ = static_cast<int>(info.ssi_signo);
}

std::string Command::text() const {
  std::string text;
  for (const std::string& part : argv) text += (text.empty() ? "" : " ") + part;
  return text;
}

Result<std::unique_ptr<RunningCommand>> RunningCommand::start(const Command& command,
                                                              Interrupts* interrupts) {
  std::unique_ptr<RunningCommand> running(new RunningCommand(command.text(), interrupts));
  CKPT_TRYV(running->spawn(command));
  return running;
}

Result<void> RunningCommand::spawn(const Command& command) {
  CKPT_TRY(out, make_pipe());
  CKPT_TRY(err, make_pipe());
  SpawnPlan plan;
  ::posix_spawn_file_actions_addopen(&plan.files, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&plan.files, out.writer.get(), 1);
  ::posix_spawn_file_actions_adddup2(&plan.files, err.writer.get(), 2);
  // The command gets its own process group. Ctrl-C then reaches only the bench, which terminates the command.
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&plan.attributes, &none);
  ::posix_spawnattr_setpgroup(&plan.attributes, 0);
  ::posix_spawnattr_setflags(&plan.attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  const std::vector<char*> argv = pointers_of(command.argv);
  const std::vector<char*> environment = pointers_of(command.environment);
  const int error =
      ::posix_spawn(&pid_, argv[0], &plan.files, &plan.attributes, argv.data(), environment.data());
  if (error != 0) {
    pid_ = -1;
    return Error::from_errno(error, "Starting " + text_);
  }
  out_pipe_ = std::move(out.reader);
  err_pipe_ = std::move(err.reader);
  return ok();
}

RunningCommand::~RunningCommand() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Result<void> RunningCommand::read_some(UniqueFd& pipe, std::string& into) {
  std::array<char, kPiece> piece;
  const ssize_t got = ::read(pipe.get(), piece.data(), piece.size());
  if (got < 0) return errno == EINTR ? Result<void>(ok()) : Error::from_errno("Reading from " + text_);
  if (got == 0) {
    pipe.reset();
    return ok();
  }
  into.append(piece.data(), static_cast<std::size_t>(got));
  if (into.size() > kMaxOutput)
    return Error(ErrorCode::kCorrupt, "There is more output than expected from " + text_);
  return ok();
}

Result<void> RunningCommand::pump(Nanos deadline) {
  const Nanos left = deadline - now_ns();
  if (left <= 0)
    return Error(ErrorCode::kTimedOut,
                 text_ + " did not finish in time; its output: " + err_.substr(0, kShownBytes));
  // A closed pipe has descriptor -1, which poll() ignores.
  std::array<pollfd, 3> fds{{{out_pipe_.get(), POLLIN, 0},
                             {err_pipe_.get(), POLLIN, 0},
                             {interrupts_ == nullptr ? -1 : interrupts_->fd(), POLLIN, 0}}};
  const auto patience = static_cast<int>(std::min<Nanos>(left / 1'000'000 + 1, 600'000));
  if (::poll(fds.data(), fds.size(), patience) < 0) {
    return errno == EINTR ? Result<void>(ok()) : Error::from_errno("Waiting for " + text_);
  }
  if (fds[2].revents != 0) {
    interrupts_->take();
    return Error(ErrorCode::kAborted, "Interrupted during " + text_);
  }
  if (fds[0].revents != 0) {
    CKPT_TRYV(read_some(out_pipe_, out_));
  }
  if (fds[1].revents != 0) {
    CKPT_TRYV(read_some(err_pipe_, err_));
  }
  return ok();
}

Result<std::optional<std::string>> RunningCommand::read_line(Nanos deadline) {
  std::size_t searched = 0;
  for (;;) {
    const std::size_t end = out_.find('\n', searched);
    if (end != std::string::npos) {
      std::optional<std::string> line = out_.substr(0, end);
      out_.erase(0, end + 1);
      return line;
    }
    if (!out_pipe_) return std::optional<std::string>();
    searched = out_.size();
    CKPT_TRYV(pump(deadline));
  }
}

Result<CommandOutput> RunningCommand::finish(Nanos deadline) {
  while (out_pipe_ || err_pipe_) {
    CKPT_TRYV(pump(deadline));
  }
  int status = 0;
  // Both pipes are closed, so the command has exited or is about to exit.
  while (::waitpid(pid_, &status, 0) < 0) {
    if (errno != EINTR) return Error::from_errno("Waiting for " + text_);
  }
  pid_ = -1;
  return CommandOutput{exit_code_of(status), std::move(out_), std::move(err_)};
}

Result<CommandOutput> run_command(const Command& command, Interrupts* interrupts, Nanos patience) {
  const Nanos deadline = now_ns() + patience;
  CKPT_TRY(running, RunningCommand::start(command, interrupts));
  return running->finish(deadline);
}

}  // namespace ckpt::bench
