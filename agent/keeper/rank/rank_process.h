// SPDX-License-Identifier: Apache-2.0
// The program of a job as a process. It is started with clean descriptors in a process group of its own, and
// signalled as that group. The kernel kills it if the keeper dies.
// Threads: none. Ownership: the process ends with kill_all() or by itself; the destructor does nothing.
// Errors: kNotFound, kIo.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "agent/keeper/settings/config.h"
#include "libckpt/base/result.h"

namespace ckpt::keeper {

class RankProcess {
 public:
  // Standard input is /dev/null, output and errors are appended to `log_path`.
  // With `config.init` the keeper has made its next child the first process of a new PID namespace
  // (enter_new_pid_namespace).
  static Result<RankProcess> start(const Config& config, const std::string& socket_path,
                                   const std::string& log_path);
  // A child of this process that was restored from an image: the init of its PID namespace.
  static RankProcess adopt(pid_t pid);
  // One that was not started by us (adopted_process.h), here or where it came from: all of its descendants
  // are signalled, whatever their group.
  static RankProcess foreign(pid_t pid);

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] std::uint64_t start_ticks() const { return start_ticks_; }
  // The program itself or a process that it has started.
  [[nodiscard]] bool contains(pid_t pid) const;
  void signal_group(int signal) const;
  // SIGKILL to the group and to its leader, which must not have been reaped. kIo: nothing was reached.
  [[nodiscard]] Result<void> kill_all() const;
  // The ids of the processes in the group.
  [[nodiscard]] std::vector<pid_t> members() const;

 private:
  RankProcess(pid_t pid, std::uint64_t start_ticks) : pid_(pid), start_ticks_(start_ticks) {}
  pid_t pid_;
  std::uint64_t start_ticks_;
  bool is_foreign_ = false;
};

// The next child is process 1 of a new PID namespace. Needs root; kNotSupported without.
Result<void> enter_new_pid_namespace();

// Field 22 of /proc/PID/stat; 0 if there is no such process.
[[nodiscard]] std::uint64_t start_ticks_of(pid_t pid);

}  // namespace ckpt::keeper
