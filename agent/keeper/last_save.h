// SPDX-License-Identifier: Apache-2.0
// Saves a rank's context before the keeper kills the rank without an order. A restore may have recreated the
// context. Some drivers hang the GPU, or the host, if a process with such a context is killed. Therefore the
// rank's memory is first exported to this keeper. Then the rank is paused and releases its memory, and a
// separate program saves the context. The agent's orders for a save are the keeper's own requests to the rank
// here, under kOwnRequest. The save always ends within kMaxLastSave, with a report, also after a failure.
// Threads: one. Ownership: the saving program is a child of this process. The constructor's arguments outlive
// the object. Errors: none. said() returns errors as text.
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
    // Handles the completion of the save. From this point on the rank may be killed.
    virtual void on_last_save_over() = 0;
  };
  struct Parts {
    const Config& config;
    const RankState& state;
    RankLink& rank;
    RankLease& lease;
    MemoryExchange& memory;
    Execution& execution;
    Timer& limit;  // timer that only this class uses while is_under_way()
    Owner& owner;
  };
  explicit LastSave(Parts parts) : parts_(parts) {}

  // Begins the save. Returns false if there is nothing to save, or if a save was already tried. Otherwise
  // on_last_save_over() follows, perhaps at once.
  bool begin();
  [[nodiscard]] bool is_under_way() const { return stage_ == Stage::kUnderWay; }
  // Returns the save's outcome, or an empty string if there was no save.
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
