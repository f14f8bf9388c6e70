// SPDX-License-Identifier: Apache-2.0
// The source agent's side of a handover (SW-2 to SW-5, SW-8 to SW-13). See handover_types.h for the form of a
// machine.
//
//   Preparing -> Ready -> Precopy -> Pausing -> Barrier -> Released            (the target keeps the job)
//        \________\__________\_________\           \--> Leased(k) -> Owner      (SW-12, first half)
//                                       `-> Owner <-----'                       (the source keeps it)
//
// The job is paused only after the coordinator sent Granted: a pause without it would be wasted. Leaving
// before BARRIER is recorded as RESUMED(n, owner, never_barrier). This migration's final manifest will then
// never exist, so the coordinator may close for the source without an answer of the target. A source with
// BARRIER lends to a target that has committed and cannot reach the coordinator (SW-10). The source takes no
// grant itself until that lease has expired. A restarted source cannot know whether it has lent, so it waits
// for a whole term.
#pragma once

#include <optional>

#include "libckpt/protocol/handover/handover_types.h"

namespace ckpt::migration {

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
struct Pausing {
  friend bool operator==(const Pausing&, const Pausing&) = default;
};
// The phase in which BARRIER is durable: the instance may no longer run without permission.
struct Barrier {
  std::optional<Reason> gives_up;  // the reason for which the source also requests that the target give up
  bool dead = false;  // whether the paused process has exited; if so, only the target can continue
  Incarnation offered = 0;
  HeldLease lease;
  Nanos lent_until = 0;  // the time until which the target may run under this side's lease
  friend bool operator==(const Barrier&, const Barrier&) = default;
};
// The phase in which the source may run as k: RESUMED(k) is recorded, and the coordinator's lease is
// required.
struct Leased {
  Incarnation k = 0;
  bool running = false;
  bool dead = false;
  Incarnation offered = 0;
  HeldLease lease;
  friend bool operator==(const Leased&, const Leased&) = default;
};
struct Owner {
  Incarnation k = 0;
  bool never_barrier = false;
  bool recorded = false;
  bool dead = false;  // whether the job's process has exited
  Reason reason;
  friend bool operator==(const Owner&, const Owner&) = default;
};
struct Released {
  friend bool operator==(const Released&, const Released&) = default;
};
}  // namespace source

struct SourceState {
  HandoverInfo info;
  std::variant<source::Preparing, source::Ready, source::Precopy, source::Pausing, source::Barrier,
               source::Leased, source::Owner, source::Released>
      phase;
  Bytes payload = {};  // the payload for the target, once prepared; it is volatile
  friend bool operator==(const SourceState&, const SourceState&) = default;
};

struct PrepareReceived {};
struct SourceReady {
  explicit SourceReady(Bytes bytes) : payload(std::move(bytes)) {}
  Bytes payload;
};
struct SourceRefused {
  explicit SourceRefused(Reason cause) : reason(std::move(cause)) {}
  Reason reason;
};
struct FirstRoundDone {};         // sent even if there is no first round (stop-copy)
struct PrecopyConverged {};       // the engine would switch now (or must, at its limit); the event may repeat
struct JobPaused {};              // all ranks wait at the barrier with nothing in flight
struct FinalDataAcknowledged {};  // the target's mover has acknowledged the final manifest

using SourceEvent =
    std::variant<PrepareReceived, SourceReady, SourceRefused, FirstRoundDone, PrecopyConverged, JobPaused,
                 FinalDataAcknowledged, EngineFailed, InstanceRuns, InstanceStopped, InstanceDied, Message,
                 TimerFired, RecordFailed, Superseded, Restarted>;

Result<Step<SourceState>> step(const SourceState& state, const SourceEvent& event, Nanos now,
                               const Timing& timing);

// Restores the state from the newest record of a migration.
Result<SourceState> restore_source(const Record& newest);

[[nodiscard]] bool is_closed(const SourceState& state) noexcept;  // returns whether the source is an owner or
                                                                  // released (SW-3)
// Returns whether the source is between BARRIER and the end of the migration. The job may then run only if
// this machine permits it.
[[nodiscard]] bool holds_job(const SourceState& state) noexcept;
[[nodiscard]] std::string_view phase_name(const SourceState& state) noexcept;

}  // namespace ckpt::migration
