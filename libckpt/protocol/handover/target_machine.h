// SPDX-License-Identifier: Apache-2.0
// The target agent's side of a handover (SW-2, SW-3, SW-5 to SW-14). See handover_types.h for the form of a
// machine.
//
//   Preparing -> Ready -> Receiving -> Verified -> Committed(k) -> Committed(k, owner)
//        \________\___________\__________\____________\--> Relinquished
//
// COMMITTED is the commit point. It is written only with VERIFIED, a Commit(k) and a valid lease for k. The
// lease is therefore requested while the copy still runs and renewed until the migration is closed.
#pragma once

#include "libckpt/protocol/handover/handover_types.h"
#include "libckpt/protocol/handover/source_machine.h"

namespace ckpt::migration {

namespace target {
struct Preparing {
  friend bool operator==(const Preparing&, const Preparing&) = default;
};
struct Ready {
  friend bool operator==(const Ready&, const Ready&) = default;
};
struct Receiving {
  friend bool operator==(const Receiving&, const Receiving&) = default;
};
struct Verified {
  friend bool operator==(const Verified&, const Verified&) = default;
};
struct Committed {
  Incarnation k = 0;
  bool owner = false;
  bool running = false;  // whether RUNS(k) has been stated
  bool dead = false;     // whether the owner's instance died or finished, so that nothing is left to run
  bool released_received = false;
  friend bool operator==(const Committed&, const Committed&) = default;
};
struct Relinquished {
  bool image = false;  // whether the verified bytes are retained until the source reports that it continues
                       // (SW-13)
  Reason reason;
  friend bool operator==(const Relinquished&, const Relinquished&) = default;
};
}  // namespace target

struct TargetState {
  HandoverInfo info;
  std::variant<target::Preparing, target::Ready, target::Receiving, target::Verified, target::Committed,
               target::Relinquished>
      phase;
  Incarnation offered = 0;  // the highest k of a received Commit
  HeldLease lease = {};
  Bytes payload = {};                  // the payload for the source, once prepared; it is volatile
  std::optional<Reason> leaving = {};  // the reason to leave; RELINQUISHED is not written yet, and nothing
                                       // else is done any more
  friend bool operator==(const TargetState&, const TargetState&) = default;
};

struct StandbyReady {
  explicit StandbyReady(Bytes bytes) : payload(std::move(bytes)) {}
  Bytes payload;
};
struct StandbyRefused {
  explicit StandbyRefused(Reason cause) : reason(std::move(cause)) {}
  Reason reason;
};
struct FinalVerified {};  // the final manifest arrived, every chunk is in place, and the roots are equal

using TargetEvent = std::variant<PrepareReceived, StandbyReady, StandbyRefused, FinalVerified, EngineFailed,
                                 InstanceRuns, InstanceStopped, InstanceFinished, InstanceDied, Message,
                                 TimerFired, RecordFailed, Superseded, Restarted>;

Result<Step<TargetState>> step(const TargetState& state, const TargetEvent& event, Nanos now,
                               const Timing& timing);
Result<TargetState> restore_target(const Record& newest);

[[nodiscard]] bool is_closed(const TargetState& state) noexcept;
[[nodiscard]] bool holds_job(const TargetState& state) noexcept;
[[nodiscard]] std::string_view phase_name(const TargetState& state) noexcept;

}  // namespace ckpt::migration
