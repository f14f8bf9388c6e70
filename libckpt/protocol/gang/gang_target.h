// SPDX-License-Identifier: Apache-2.0
// The target of a rank that moves, in the gang commit (GANG-3 to GANG-8, GANG-12).
//
//   Preparing -> Standby -> Receiving -> Verified -> Promised(k) -> Promised(k, owner)
//   each -> Relinquished
//
// Verified, and its new communicators are made: it promises. Those are made ahead of the pause, or from Granted on.
// Promised: READY(k), of the lead COMMITTED(k), which is the only decision. Relinquished before that is a veto: no GO can
// follow. After it a target gives up only if its instance is gone, or on others' word. It passes its gate on GO, with a
// lease of its own or as owner.
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
  bool finished = false;  // its program has ended: it passed its gate, and never runs again
  friend bool operator==(const Promised&, const Promised&) = default;
};
struct Relinquished {
  bool veto = false;
  Reason reason;
  friend bool operator==(const Relinquished&, const Relinquished&) = default;
};
}  // namespace target

struct TargetState {
  GangInfo info;
  std::uint32_t rank = 0;
  std::variant<target::Preparing, target::Standby, target::Receiving, target::Verified, target::Promised,
               target::Relinquished>
      phase;
  Bytes payload;  // for the source
  bool granted = false;
  bool has_communicators = false;  // where they do not overlap: its new ones are made
  HeldLease lease;
  // Received, and asked for again after a restart.
  bool committed = false;         // by the lead
  bool go = false;                // by the lead
  std::set<std::uint32_t> ready;  // at the lead: targets with READY
  std::set<std::uint32_t> held;   // at the lead: bystanders
  std::set<std::uint32_t> gates;  // at the lead: targets in their gates
  std::optional<Reason> leaving;  // RELINQUISHED could not be written yet: nothing else is done any more
  friend bool operator==(const TargetState&, const TargetState&) = default;
};

using TargetEvent =
    std::variant<PrepareReceived, StandbyReady, StandbyRefused, FinalVerified, EngineFailed,
                 CommunicatorsReady, CommunicatorsFailed, RankInGate, InstanceRuns, InstanceStopped,
                 InstanceFinished, InstanceDied, Message, TimerFired, RecordFailed, Restarted>;

Result<Step<TargetState, Action>> step(const TargetState& state, const TargetEvent& event, Nanos now,
                                       const Timing& timing);
// Restarted is fed first. Without a record the state is that of the beginning: it relinquishes.
Result<TargetState> restore_target(const GangInfo& info, std::uint32_t rank, const Record* newest);
[[nodiscard]] bool is_closed(const TargetState& state) noexcept;
[[nodiscard]] std::string_view phase_name(const TargetState& state) noexcept;

}  // namespace ckpt::gang
