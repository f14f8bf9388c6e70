// SPDX-License-Identifier: Apache-2.0
// A process that an agent takes for a keeper which does not answer.
// Threads: one. Ownership: the process is killed with its object.
#pragma once

#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "agent/host_process/processes/process_tree.h"

namespace ckpt::agent {

// A live process that keeper.pid of `folder` names as the keeper.
class LiveProcess {
 public:
  explicit LiveProcess(const std::string& folder) : pid_(::fork()) {
    if (pid_ == 0) {
      ::close_range(3, ~0U, 0);  // an inherited socket would keep the test's connections open
      for (;;) ::pause();
    }
    std::ofstream(folder + "/keeper.pid") << pid_ << " " << host::start_ticks_of(pid_) << "\n";
  }
  ~LiveProcess() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  LiveProcess(const LiveProcess&) = delete;
  LiveProcess& operator=(const LiveProcess&) = delete;

 private:
  const pid_t pid_;
};

}  // namespace ckpt::agent
