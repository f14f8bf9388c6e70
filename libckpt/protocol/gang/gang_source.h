// SPDX-License-Identifier: Apache-2.0
// The source of a rank that moves, in the gang commit (GANG-1, GANG-5, GANG-7 to GANG-12).
//
//   Preparing -> Ready -> Precopy -> Holding -> Barrier -> Released
//   before the BARRIER: -> Owner(n), it never had one
//   from the BARRIER:   -> Owner(n), Owner(n+2)
//   from each but Released: -> Fenced
//
// With BARRIER it goes on in the old epoch on a veto, on ABORTED or CLOSED(source), or on the grant of n+2. It frees once
// a bystander has swapped, or, without bystanders, once all targets have passed their gates. Where there is no bystander it
// answers WITHDRAW by HELD_STILL: then it refuses to free until the coordinator has recorded KEPT.
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
  bool still = false;  // HELD_STILL is recorded
  bool dead = false;   // the process is gone: only the targets can go on
  std::optional<Reason> gives_up;
  bool sent = false;  // its target has the last copy, or that has ended with a restart of the agent
  friend bool operator==(const Barrier&, const Barrier&) = default;
};
struct Owner {
  Incarnation k = 0;
  bool never = false;     // without a BARRIER of this migration
  bool recorded = false;  // nothing is stated before
  Reason reason;
  friend bool operator==(const Owner&, const Owner&) = default;
};
struct Released {
  friend bool operator==(const Released&, const Released&) = default;
};
struct Fenced {
  friend bool operator==(const Fenced&, const Fenced&) = default;
};
}  // namespace source

struct SourceState {
  GangInfo info;
  std::uint32_t rank = 0;
  std::variant<source::Preparing, source::Ready, source::Precopy, source::Holding, source::Barrier,
               source::Owner, source::Released, source::Fenced>
      phase;
  Bytes payload;  // for the target
  // Received, and asked for again after a restart.
  bool swapped = false;         // a bystander is GONE
  std::set<std::uint32_t> ran;  // targets past their gates
  bool kept = false;
  friend bool operator==(const SourceState&, const SourceState&) = default;
};

using SourceEvent = std::variant<PrepareReceived, SourceReady, SourceRefused, FirstRoundDone,
                                 PrecopyConverged, RankHeld, FinalDataAcknowledged, EngineFailed,
                                 InstanceDied, Message, TimerFired, RecordFailed, Restarted>;

Result<Step<SourceState, Action>> step(const SourceState& state, const SourceEvent& event, Nanos now,
                                       const Timing& timing);
// Restarted is fed first. Without a record the state is that of the beginning: it leaves.
Result<SourceState> restore_source(const GangInfo& info, std::uint32_t rank, const Record* newest);
[[nodiscard]] bool is_closed(const SourceState& state) noexcept;
[[nodiscard]] std::string_view phase_name(const SourceState& state) noexcept;

}  // namespace ckpt::gang
