// SPDX-License-Identifier: Apache-2.0
// The target of a rank that moves, in the gang commit (GANG-3 to GANG-8, GANG-12).
//
//   Preparing -> Standby -> Receiving -> Verified -> Promised(k) -> Promised(k, owner)
//   each -> Relinquished
//
// A target that is verified and has its new communicators promises. The communicators are made before the
// pause, or from Granted on. The promise is the record READY(k), or at the lead COMMITTED(k), which is the
// only decision. Relinquished before the promise is a veto: no GO can follow. After the promise a target
// gives up only if its instance has exited, or on statements of other parties. A target passes its gate on
// GO, with its own lease or as owner.
#pragma once

#include <set>

#include "libckpt/protocol/gang/gang_types.h"

namespace ckpt::gang {

namespace target {
struct Preparing {
  friend bool operator==(const Preparing&, const Preparing&) = default;
};
struct Standby {
  friend bool operator==(const Standby&, const Standby&) = default;
};
struct Receiving {
  friend bool operator==(const Receiving&, const Receiving&) = default;
};
struct Verified {
  friend bool operator==(const Verified&, const Verified&) = default;
};
struct Promised {
  bool owner = false;
  bool in_gate = false;
  bool running = false;
  bool finished = false;  // whether the instance's program has exited; the instance had passed its gate, and
                          // never runs again
  friend bool operator==(const Promised&, const Promised&) = default;
};
struct Relinquished {
  bool veto = false;
  Reason reason;
  // Whether the instance cannot run any more; before that, the target makes no statement. An instance of a
  // target that has not promised never runs.
  bool ended = false;
  friend bool operator==(const Relinquished&, const Relinquished&) = default;
};
}  // namespace target

struct TargetState {
  GangInfo info;
  std::uint32_t rank = 0;
  std::variant<target::Preparing, target::Standby, target::Receiving, target::Verified, target::Promised,
               target::Relinquished>
      phase;
  Bytes payload;  // the payload for the source
  bool granted = false;
  bool has_communicators = false;  // whether the new communicators are made; used only if they are made
                                   // during the pause
  HeldLease lease;
  // Received statements, which are requested again after a restart.
  bool committed = false;         // whether the lead has committed
  bool go = false;                // whether the lead has sent GO
  std::set<std::uint32_t> ready;  // at the lead: the targets with READY
  std::set<std::uint32_t> held;   // at the lead: the bystanders with HELD
  std::set<std::uint32_t> gates;  // at the lead: the targets in their gates
  std::optional<Reason> leaving;  // the reason to leave; RELINQUISHED is not written yet, and nothing else is
                                  // done any more
  friend bool operator==(const TargetState&, const TargetState&) = default;
};

using TargetEvent =
    std::variant<PrepareReceived, StandbyReady, StandbyRefused, FinalVerified, EngineFailed,
                 CommunicatorsReady, CommunicatorsFailed, RankInGate, InstanceRuns, InstanceStopped,
                 InstanceFinished, InstanceDied, RankEnded, Message, TimerFired, RecordFailed, Restarted>;

Result<Step<TargetState, Action>> step(const TargetState& state, const TargetEvent& event, Nanos now,
                                       const Timing& timing);
// Restores the state from the newest record. The first event must be Restarted. Without a record, the state
// is the initial one, and the target relinquishes.
Result<TargetState> restore_target(const GangInfo& info, std::uint32_t rank, const Record* newest);
[[nodiscard]] bool is_closed(const TargetState& state) noexcept;
[[nodiscard]] std::string_view phase_name(const TargetState& state) noexcept;

}  // namespace ckpt::gang
