// SPDX-License-Identifier: Apache-2.0
// Saving a rank's context before the keeper kills the rank by itself. A context may have come back by a
// restore. Some drivers hang the GPU, or the host, if a process is killed while it has such a context. So the
// rank's memory is exported to this keeper. Then the rank is paused and lets go of it, and a program of its
// own saves the context. An agent's orders of a save are here the keeper's requests to the rank, under
// kOwnRequest. In every failure the save is over within kMaxLastSave, with a report.
// Threads: one. Ownership: the saving program, a child of this process. Arguments at construction outlive it.
// Errors: none; said() returns them as text.
#pragma once

#include <sys/types.h>

#include <string>

#include "agent/keeper/execution.h"
#include "agent/keeper/io/timer.h"
#include "agent/keeper/memory/memory_exchange.h"
#include "agent/keeper/settings/config.h"

namespace ckpt::keeper {

class LastSave {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // Called when the rank may be killed.
    virtual void on_last_save_over() = 0;
  };
  struct Parts {
    const Config& config;
    const RankState& state;
    RankLink& rank;
    RankLease& lease;
    MemoryExchange& memory;
    Execution& execution;
    Timer& limit;  // exclusive while is_under_way()
    Owner& owner;
  };
  explicit LastSave(Parts parts) : parts_(parts) {}

  // Begins the save. False: there is nothing to save, or it was tried. Else on_last_save_over() follows,
  // perhaps at once.
  bool begin();
  [[nodiscard]] bool is_under_way() const { return stage_ == Stage::kUnderWay; }
  // Returns the save's outcome; empty if there was none.
  [[nodiscard]] const std::string& said() const { return said_; }

  void on_own_answer(const local::Body& body);
  void on_child_ended(pid_t pid, int status);
  void on_limit();
  void on_rank_exited();

 private:
  enum class Stage { kNone, kUnderWay, kOver };
  void save_context();
  void end(const std::string& why_not);

  Parts parts_;
  Stage stage_ = Stage::kNone;
  std::string said_;
  pid_t saver_ = 0;
};

}  // namespace ckpt::keeper
