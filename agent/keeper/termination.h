// SPDX-License-Identifier: Apache-2.0
// Terminates the rank: Stop (SIGTERM, then SIGKILL after a grace), Kill, and Moved. After Moved, no part of
// the program may run any more. A kill that no agent has prepared follows the last save (last_save.h).
// Threads: one. Ownership: the timer of the grace. The constructor's arguments outlive the object. Errors: a
// signal that does not reach the program is reported on standard error.
#pragma once

#include <cstdint>

#include "agent/keeper/last_save.h"

namespace ckpt::keeper {

class Termination : private LastSave::Owner {
 public:
  struct Parts {
    const Config& config;
    const RankProcess& process;
    RankState& state;
    RankLink& rank;
    AgentPort& agent;
    RankLease& lease;
    MemoryExchange& memory;
    Execution& execution;
    Timer grace;
    bool is_transparent = false;
  };
  explicit Termination(Parts parts);

  // Stops the rank. `request` 0 is the keeper's own request and gets no answer.
  void stop(std::uint64_t request, std::uint64_t grace_ms);
  // Kills the rank. An agent that orders a kill has already saved the context, if there is one.
  void kill(std::uint64_t request);
  void moved(std::uint64_t request);

  [[nodiscard]] LastSave& last_save() { return last_save_; }
  [[nodiscard]] const LastSave& last_save() const { return last_save_; }
  [[nodiscard]] int fd() const { return parts_.grace.fd(); }
  void on_timer();
  // Checks whether the job's processes currently have time to exit after SIGTERM.
  [[nodiscard]] bool gives_grace() const { return gives_grace_; }
  // Handles the loss of the rank's session.
  void on_rank_gone();
  // Handles the exit of the program. Processes that the program has left behind are terminated, too.
  void on_exited();

 private:
  void on_last_save_over() override { kill_now(); }
  void kill_after_save();
  void kill_now();
  void set_grace(std::uint64_t grace_ms);

  Parts parts_;
  LastSave last_save_;
  bool gives_grace_ = false;
};

}  // namespace ckpt::keeper
