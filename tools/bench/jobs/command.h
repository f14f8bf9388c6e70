// SPDX-License-Identifier: Apache-2.0
// Other programs that the bench runs. They are started with pipes, and their output is read up to a limit.
// Each is waited for with a deadline, and is killed with its owner. The caller checks the output.
//
//   CKPT_TRY(interrupts, Interrupts::create());
//   CKPT_TRY(done, run_command({{program, "argument"}, environment}, interrupts.get(), 60'000'000'000));
//
// Threads: one. Ownership: the destructor of a RunningCommand kills and reaps a program that still runs.
// Errors: kTimedOut naming the command; kAborted after SIGINT, SIGTERM or SIGHUP; kCorrupt for more than
// kMaxOutput bytes; kIo. Times are CLOCK_BOOTTIME.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "libckpt/base/clock.h"
#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::bench {

inline constexpr std::size_t kMaxOutput = std::size_t{64} << 20;

// A handler of SIGINT, SIGTERM and SIGHUP. While it exists, these signals terminate only the command that is
// waited for, so that started programs can be stopped cleanly. Its destructor raises the last received signal
// again.
class Interrupts {
 public:
  static Result<std::unique_ptr<Interrupts>> create();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  // Reads the pending signals, and stores the last one for the destructor.
  void take();

 private:
  Interrupts() = default;
  UniqueFd fd_;
  sigset_t before_{};
  int taken_ = 0;
};

struct Command {
  std::vector<std::string> argv;         // argv[0] is the path of the program
  std::vector<std::string> environment;  // the whole environment, as "NAME=VALUE"
  [[nodiscard]] std::string text() const;
};

struct CommandOutput {
  int exit_code = 0;  // the exit code, or 128 + signal if a signal terminated the program
  std::string out;
  std::string err;
};

class RunningCommand {
 public:
  // Starts a command. `interrupts` may be null; then no signal ends a wait early.
  static Result<std::unique_ptr<RunningCommand>> start(const Command& command, Interrupts* interrupts);
  ~RunningCommand();
  RunningCommand(const RunningCommand&) = delete;
  RunningCommand& operator=(const RunningCommand&) = delete;

  // Returns the next line of the standard output without its line end; nullopt: no more lines.
  Result<std::optional<std::string>> read_line(Nanos deadline);
  // Reads the rest and waits for the command's exit. `out` contains the output that read_line() has not
  // returned.
  Result<CommandOutput> finish(Nanos deadline);

 private:
  RunningCommand(std::string text, Interrupts* interrupts)
      : text_(std::move(text)), interrupts_(interrupts) {}
  Result<void> spawn(const Command& command);
  // Waits for more output from either pipe. An end of file closes the pipe.
  Result<void> pump(Nanos deadline);
  Result<void> read_some(UniqueFd& pipe, std::string& into);

  std::string text_;
  Interrupts* interrupts_;
  pid_t pid_ = -1;
  UniqueFd out_pipe_;
  UniqueFd err_pipe_;
  std::string out_;
  std::string err_;
};

Result<CommandOutput> run_command(const Command& command, Interrupts* interrupts, Nanos patience);

}  // namespace ckpt::bench
