// SPDX-License-Identifier: Apache-2.0
// The source of a rank that moves, in the gang commit (GANG-1, GANG-5, GANG-7 to GANG-12).
//
//   Preparing -> Ready -> Precopy -> Holding -> Barrier -> Released
//   before the BARRIER: -> Owner(n), it never had one
//   from the BARRIER:   -> Owner(n), Owner(n+2)
//   from each but Released: -> Fenced
//
// A source with BARRIER continues in the old epoch on a veto, on ABORTED or CLOSED(source), or on the grant
// of n+2. It frees its memory once a bystander has swapped. Without bystanders, it does so once all targets
// have passed their gates. Without bystanders, it also answers WITHDRAW with HELD_STILL, and then does not
// free its memory until the coordinator has recorded KEPT.
#pragma once

#include <set>

#include "libckpt/protocol/gang/gang_types.h"

namespace ckpt::gang {

namespace source {
struct Preparing {
  friend bool operator==(const Preparing&, const Preparing&) = default;
};
struct Ready {
  friend bool operator==(const Ready&, const Ready&) = default;
};
struct Precopy {
  bool first_round_done = false;
  bool converged = false;
  bool granted = false;
  friend bool operator==(const Precopy&, const Precopy&) = default;
};
struct Holding {
  friend bool operator==(const Holding&, const Holding&) = default;
};
struct Barrier {
  bool still = false;  // whether HELD_STILL is recorded
  bool dead = false;   // whether the process has exited; if so, only the targets can continue
  std::optional<Reason> gives_up;
  bool sent = false;  // whether the target has the last copy, or a restart of the agent ended the copy
  friend bool operator==(const Barrier&, const Barrier&) = default;
};
struct Owner {
  Incarnation k = 0;
  bool never = false;     // whether the source never had a BARRIER of this migration
  bool recorded = false;  // whether the phase is recorded; before that, the source makes no statement
  Reason reason;
  friend bool operator==(const Owner&, const Owner&) = default;
};
struct Released {
  friend bool operator==(const Released&, const Released&) = default;
};
struct Fenced {
  bool ended = false;  // whether the rank is proven to have ended; before that, the source makes no statement
  friend bool operator==(const Fenced&, const Fenced&) = default;
};
}  // namespace source

struct SourceState {
  GangInfo info;
  std::uint32_t rank = 0;
  std::variant<source::Preparing, source::Ready, source::Precopy, source::Holding, source::Barrier,
               source::Owner, source::Released, source::Fenced>
      phase;
  Bytes payload;  // the payload for the target
  // Received statements, which are requested again after a restart.
  bool swapped = false;         // whether a bystander has stated GONE
  std::set<std::uint32_t> ran;  // the targets that have passed their gates
  bool kept = false;
  friend bool operator==(const SourceState&, const SourceState&) = default;
};

using SourceEvent = std::variant<PrepareReceived, SourceReady, SourceRefused, FirstRoundDone,
                                 PrecopyConverged, RankHeld, FinalDataAcknowledged, EngineFailed,
                                 InstanceDied, RankEnded, Message, TimerFired, RecordFailed, Restarted>;

Result<Step<SourceState, Action>> step(const SourceState& state, const SourceEvent& event, Nanos now,
                                       const Timing& timing);
// Restores the state from the newest record. The first event must be Restarted. Without a record, the state
// is the initial one, and the source leaves the move.
Result<SourceState> restore_source(const GangInfo& info, std::uint32_t rank, const Record* newest);
[[nodiscard]] bool is_closed(const SourceState& state) noexcept;
[[nodiscard]] std::string_view phase_name(const SourceState& state) noexcept;

}  // namespace ckpt::gang
