// SPDX-License-Identifier: Apache-2.0
// Starts the agent's child processes (keepers, movers) and watches for their end. Threads: the event loop.
// Ownership: a ChildProcess that goes away does not end its process; it only ends the watch (the process is
// reaped when the agent ends).
// Errors: kIo when the program cannot be started, with the path and why.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "agent/io/async.h"
#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::agent {

struct ProcessSpec {
  std::vector<std::string> argv;         // argv[0] is the path of the program
  std::vector<std::string> environment;  // added to or replacing the agent's own, "KEY=VALUE"
  std::string output_path;   // standard output and error are appended here; created with mode 0600
  int inherited = -1;        // becomes descriptor 3, the only one besides 0-2
  bool own_session = false;  // a session of its own, so that no signal to the agent's group reaches it
};

class ChildProcess : public std::enable_shared_from_this<ChildProcess> {
 public:
  // `ended` is called once, on the loop, with the wait status.
  static Result<std::shared_ptr<ChildProcess>> start(const asio::any_io_executor& executor,
                                                     const ProcessSpec& spec, std::function<void(int)> ended);
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  void signal(int number) const;
  [[nodiscard]] bool running() const noexcept { return running_; }

 private:
  ChildProcess(const asio::any_io_executor& executor, pid_t pid, int pidfd, std::function<void(int)> ended);
  void watch();
  void look();
  void end(int status);

  pid_t pid_;
  asio::posix::stream_descriptor pidfd_;
  asio::steady_timer again_;
  std::function<void(int)> ended_;
  bool running_ = true;
};

// "exit status 3" or "signal 9 (Killed)".
[[nodiscard]] std::string describe_wait_status(int status);

// The folder of the running program, where its siblings are.
[[nodiscard]] Result<std::string> program_folder();

}  // namespace ckpt::agent
