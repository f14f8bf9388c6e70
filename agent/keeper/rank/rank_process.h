// SPDX-License-Identifier: Apache-2.0
// The program of a job and what descends from it, in whatever session or process group: the job's processes.
// It is started with clean descriptors in a process group of its own. The kernel kills the program if the
// keeper dies. In a PID namespace of its own orphans stay with its init. Else they come to the keeper, a
// subreaper, which leaves its own process group to itself and its helpers.
// Threads: one. Ownership: the processes end with kill_all() or by themselves; the destructor does nothing.
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
  // Standard input is /dev/null, output and errors are appended to `log_path`.
  // With `config.init` the keeper has made its next child the first process of a new PID namespace
  // (enter_new_pid_namespace).
  static Result<RankProcess> start(const Config& config, const std::string& socket_path,
                                   const std::string& log_path);
  // Takes a child of this process that was restored from an image: the init of its PID namespace.
  static RankProcess adopt(pid_t pid);
  // Takes a process that was not started by gpumigrate (adopted_process.h), on this node or another. Its
  // orphans go to another parent.
  static RankProcess foreign(pid_t pid);

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] std::uint64_t start_ticks() const { return start_ticks_; }
  // Names a child of the keeper in a process group of its own that is not one of the job's processes.
  void leave_out(pid_t helper) { helper_ = helper; }
  // True if `pid` is one of the job's processes. The process must not be able to end meanwhile.
  [[nodiscard]] bool contains(pid_t pid) const;
  // Lists the living processes, parents before children.
  [[nodiscard]] std::vector<pid_t> members() const;

  // Stops all processes. With `remembers_stopped`, a process that was stopped before stays so in
  // continue_all().
  void stop_all(bool remembers_stopped);
  // Adds processes that a restored job had stopped itself, by their ids in its PID namespace. continue_all()
  // leaves them stopped.
  void remember_stopped(const std::vector<pid_t>& in_namespace);
  void continue_all();
  // Sends SIGTERM. An init then ends after all others.
  void terminate_all() const;
  // Sends SIGKILL. kIo: not even the program could be killed, although it has not been reaped.
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
  std::map<pid_t, std::uint64_t> stopped_before_;  // start ticks, by process
};

// The next child is process 1 of a new PID namespace. Needs root; kNotSupported without.
Result<void> enter_new_pid_namespace();

}  // namespace ckpt::keeper
