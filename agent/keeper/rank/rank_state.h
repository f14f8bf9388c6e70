// SPDX-License-Identifier: Apache-2.0
// The keeper's state of its rank: its phase, the incarnation that it runs as, its end.
// Threads: one. Each field names the class that changes it; every part of the keeper reads it.
#pragma once

#include <cstdint>

#include "libckpt/base/clock.h"
#include "libckpt/inprocess/local/messages.h"

namespace ckpt::keeper {

struct RankState {
  local::Phase phase = local::Phase::kStarting;
  // Execution: the last incarnation that it ran as; before it runs, the one that it was started for.
  std::uint64_t incarnation = 0;
  Nanos resumed_ns = 0;        // Execution: when it went on the last time; 0: it never ran under this keeper
  Nanos barrier_entry_ns = 0;  // Execution: of the last pause
  Nanos quiesced_ns = 0;       // Execution
  Nanos clock_lag = 0;         // Keeper: of a restored rank's clock (rank_clock.h)
  bool restored = false;       // its context may have come back by a restore
  bool ended_by_keeper = false;  // Termination
  bool moved = false;            // Termination
  int wait_status = 0;           // Keeper
};

}  // namespace ckpt::keeper
