// SPDX-License-Identifier: Apache-2.0
// Starts the agent's child processes (keepers, movers) and watches for their exit.
// Threads: the event loop. Ownership: the destructor of a ChildProcess does not terminate the process, but
// only stops the watch. The process is then reaped after the agent's own exit. Errors: kIo, with the path and
// the reason, if the program cannot be started.
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
  std::vector<std::string> argv;         // arguments; argv[0] is the path of the program
  std::vector<std::string> environment;  // variables ("KEY=VALUE") that are added to the agent's own or
                                         // replace them
  std::string output_path;   // file to which standard output and error are appended; created with mode 0600
  int inherited = -1;        // descriptor that the program inherits as descriptor 3, its only one besides
                             // 0-2; -1 means none
  bool own_session = false;  // true for a separate session, which signals to the agent's group do not reach
};

class ChildProcess : public std::enable_shared_from_this<ChildProcess> {
 public:
  // Starts a process. After the process has exited, `ended` is called once, on the loop, with the wait
  // status.
  static Result<std::shared_ptr<ChildProcess>> start(const asio::any_io_executor& executor,
                                                     const ProcessSpec& spec, std::function<void(int)> ended);
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  void signal(int number) const;
  [[nodiscard]] bool running() const noexcept { return running_; }

 private:
  ChildProcess(const asio::any_io_executor& executor, pid_t pid, int pidfd, std::function<void(int)> ended);
  void watch();
  void check_exit();
  void end(int status);

  pid_t pid_;
  asio::posix::stream_descriptor pidfd_;
  asio::steady_timer again_;
  std::function<void(int)> ended_;
  bool running_ = true;
};

// Returns a text such as "exit status 3" or "signal 9 (Killed)".
[[nodiscard]] std::string describe_wait_status(int status);

// Returns the folder of the running program, which also contains its sibling programs.
[[nodiscard]] Result<std::string> program_folder();

}  // namespace ckpt::agent
