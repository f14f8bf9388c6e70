// SPDX-License-Identifier: Apache-2.0
// The limits of the handover's state machines, from the agent's configuration.
// Threads: any. Errors: none.
#pragma once

#include <cstdint>

#include "agent/settings/config.h"
#include "libckpt/protocol/handover/handover_types.h"

namespace ckpt::agent {

inline migration::Timing timing_of(const Config& config) {
  migration::Timing timing;
  timing.lease_term_ms = static_cast<std::uint32_t>(config.lease_term.count());
  timing.lease_renew_ms = timing.lease_term_ms / 3;
  timing.pause_timeout_ms = static_cast<std::uint32_t>(config.pause_timeout.count());
  timing.handover_timeout_ms = static_cast<std::uint32_t>(config.handover_timeout.count());
  return timing;
}

// Returns the limits for moves of ranks. RankStop limits how long a rank waits for other ranks (rank_stop.h).
// The state machines' own pause limit is therefore the limit of the whole move.
inline migration::Timing gang_timing_of(const Config& config) {
  migration::Timing timing = timing_of(config);
  timing.pause_timeout_ms = timing.migration_timeout_ms;
  return timing;
}

}  // namespace ckpt::agent
