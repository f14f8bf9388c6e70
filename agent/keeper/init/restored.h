// SPDX-License-Identifier: Apache-2.0
// Starting a program from a CRIU image as the keeper's child. The agent composes the command
// (agent/host_process/criu.h); the keeper gives it the log and becomes the parent.
// Threads: one; it blocks until CRIU is done. Ownership: the process is a child of the caller. Errors: kIo
// (why stands in CRIU's log, which the agent reads), kTimedOut. Every child of the caller is killed then, so
// that nothing of the program is left.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "agent/keeper/init/lazy_pages.h"
#include "libckpt/base/result.h"

namespace ckpt::keeper {

// The descriptor under which CRIU finds the program's new log (`--inherit-fd fd[10]:…` of the command).
inline constexpr int kRestoredLogFd = 10;

// The descriptor under which CRIU finds its PID namespace, if one was made beforehand.
inline constexpr int kRestoredNamespaceFd = 11;

struct RestoreSpec {
  std::vector<std::string> command;          // argv; [0] is the path of CRIU
  std::string pid_file;                      // written by CRIU at the command's order; removed first
  int log = -1;                              // the program's new log, opened for appending
  int pid_namespace = -1;                    // holder.h; -1: the image has its own
  std::chrono::milliseconds timeout{60000};  // later CRIU is killed
  // Run first; starts the process that brings the program's memory. Empty: it comes with the program. The
  // caller is a subreaper then.
  std::vector<std::string> lazy_pages;
  std::string lazy_pages_pid_file;  // written by that command
};

struct RestoredProgram {
  // The init of the restored tree. It is stopped, with all its processes, if the command has --leave-stopped.
  pid_t pid = 0;
  std::optional<LazyPages> lazy_pages;
};
Result<RestoredProgram> start_restored(const RestoreSpec& spec);

}  // namespace ckpt::keeper
