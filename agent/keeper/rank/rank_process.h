// SPDX-License-Identifier: Apache-2.0
// The program of a job and its descendants, in any session or process group: the job's processes. The program
// is started with clean descriptors in its own process group. The kernel kills the program if the keeper
// exits. In a separate PID namespace, orphans stay with the namespace's init. Otherwise they become children
// of the keeper, which is a subreaper. The keeper's own process group contains only the keeper and its
// helpers.
// Threads: one. Ownership: the processes exit after kill_all() or on their own. The destructor does nothing.
// Errors: kNotFound, kIo.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "agent/keeper/rank/descent.h"
#include "agent/keeper/settings/config.h"
#include "libckpt/base/result.h"

namespace ckpt::keeper {

class RankProcess {
 public:
  // Starts the program. Standard input is /dev/null. Output and errors are appended to `log_path`. With
  // `config.init`, the caller must first make its next child the first process of a new PID namespace
  // (enter_new_pid_namespace).
  static Result<RankProcess> start(const Config& config, const std::string& socket_path,
                                   const std::string& log_path);
  // Takes over a child of this process that was restored from an image. The child is the init of its PID
  // namespace.
  static RankProcess adopt(pid_t pid);
  // Takes over a process that gpumigrate did not start (adopted_process.h), on this node or another. The
  // process's orphans get another parent.
  static RankProcess foreign(pid_t pid);

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] std::uint64_t start_ticks() const { return start_ticks_; }
  // Excludes a child of the keeper, in its own process group, from the job's processes.
  void leave_out(pid_t helper) { helper_ = helper; }
  // Checks whether `pid` is one of the job's processes. The process must not be able to exit during the call.
  [[nodiscard]] bool contains(pid_t pid) const;
  // Returns the living processes, parents before children.
  [[nodiscard]] std::vector<pid_t> members() const;

  // Stops all processes. With `remembers_stopped`, continue_all() leaves processes stopped that were stopped
  // before.
  void stop_all(bool remembers_stopped);
  // Adds processes that a restored job had stopped itself, by their ids in its PID namespace. continue_all()
  // leaves these processes stopped.
  void remember_stopped(const std::vector<pid_t>& in_namespace);
  void continue_all();
  // Sends SIGTERM to all processes. An init exits after all other processes.
  void terminate_all() const;
  // Sends SIGKILL to all processes. kIo means that even the program could not be killed, although it was not
  // reaped.
  [[nodiscard]] Result<void> kill_all() const;

 private:
  RankProcess(pid_t pid, std::uint64_t start_ticks, bool has_namespace)
      : pid_(pid), start_ticks_(start_ticks), has_namespace_(has_namespace) {}
  [[nodiscard]] bool is_there() const { return start_ticks_of(pid_) == start_ticks_; }
  [[nodiscard]] std::vector<pid_t> roots() const;
  [[nodiscard]] bool is_orphan(pid_t child) const;
  void stop_each(const std::function<void(pid_t)>& before) const;

  pid_t pid_;
  std::uint64_t start_ticks_;
  bool has_namespace_;
  bool is_foreign_ = false;
  pid_t helper_ = 0;
  std::map<pid_t, std::uint64_t> stopped_before_;  // start ticks of the stopped processes, by process id
};

// Makes the next child process 1 of a new PID namespace. The function needs root. Without root the error is
// kNotSupported.
Result<void> enter_new_pid_namespace();

}  // namespace ckpt::keeper
