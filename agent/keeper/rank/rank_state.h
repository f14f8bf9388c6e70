// SPDX-License-Identifier: Apache-2.0
// The keeper's state of its rank: the phase, the incarnation and the exit.
// Threads: one. Each field names the class that changes the field. Every part of the keeper reads the fields.
#pragma once

#include <cstdint>

#include "libckpt/base/clock.h"
#include "libckpt/inprocess/local/messages.h"

namespace ckpt::keeper {

struct RankState {
  local::Phase phase = local::Phase::kStarting;
  // Execution: the last incarnation that the rank ran as. Before the rank runs, this is the incarnation that
  // the rank was started for.
  std::uint64_t incarnation = 0;
  Nanos resumed_ns = 0;          // Execution: the time at which the rank last continued; 0 if it never ran
                                 // under this keeper
  Nanos barrier_entry_ns = 0;    // Execution: time of the barrier entry at the last pause
  Nanos quiesced_ns = 0;         // Execution: time of the quiesced state at the last pause
  Nanos clock_lag = 0;           // Keeper: lag of a restored rank's clock (rank_clock.h)
  bool restored = false;         // true if a restore may have recreated the rank's context
  bool ended_by_keeper = false;  // true if this keeper terminated the rank; only Termination changes this
                                 // field
  bool moved = false;            // true if the job has moved elsewhere; only Termination changes this field
  int wait_status = 0;           // Keeper: the program's wait status
};

}  // namespace ckpt::keeper
