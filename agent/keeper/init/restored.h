// SPDX-License-Identifier: Apache-2.0
// Starts a program from a CRIU image as the keeper's child. The agent composes the command
// (agent/host_process/criu.h). The keeper provides the log and becomes the parent.
// Threads: one, which blocks until CRIU has finished. Ownership: the process is a child of the caller.
// Errors: kIo (the reason is in CRIU's log, which the agent reads), kTimedOut. Every child of the caller is
// then killed, so that nothing of the program is left.
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
  std::vector<std::string> command;  // arguments of the command; the first one is the path of CRIU
  std::string pid_file;        // file that CRIU writes because of the command; an old file is removed first
  int log = -1;                // descriptor of the program's new log, opened for appending
  int pid_namespace = -1;      // descriptor of the PID namespace (holder.h); -1 if the image
                               // has its own namespace
  bool leaves_mounts = false;  // true: CRIU restores a mount namespace (own_namespaces.h)
  std::chrono::milliseconds timeout{60000};  // CRIU is killed after this time
  // The command that runs first and starts the process that provides the program's memory. Without a command,
  // all memory is restored before the program runs. With a command, the caller must be a subreaper.
  std::vector<std::string> lazy_pages;
  std::string lazy_pages_pid_file;  // file that the lazy_pages command writes
};

struct RestoredProgram {
  // The init of the restored tree. If the command has --leave-stopped, the init and all its processes are
  // stopped.
  pid_t pid = 0;
  std::optional<LazyPages> lazy_pages;
};
Result<RestoredProgram> start_restored(const RestoreSpec& spec);

}  // namespace ckpt::keeper
