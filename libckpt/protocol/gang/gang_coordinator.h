// SPDX-License-Identifier: Apache-2.0
// The coordinator's side of the gang commit (GANG-5, GANG-7 to GANG-12).
//
//   Begun -> Granted(n+1) -> Closed(target) | Closed(source)
//   Begun -> Aborted
//   Granted -> Kept(n+1) -> Closed(target)
//   Granted -> Returned(n+2) -> Closed(source)
//   each but Begun -> Restored
//   Asking -> Granted(n+1)
//
// Asking: the record was lost with the coordinator's disk. The coordinator queries each rank for all its
// statements. If a decision had reached a rank, the statements imply a later phase than Granted: a return,
// Kept, or Restored.
//
// The coordinator stores nothing except its record and its leases. The ranks' statements decide each step,
// and the coordinator queries the ranks for them again after a restart. A veto closes the move for the
// sources. A bystander that has swapped permanently excludes the return. Restored occurs only where neither
// set of ranks can continue. The gang is restored from its image once every instance is fenced.
#pragma once

#include <map>

#include "libckpt/protocol/gang/gang_types.h"

namespace ckpt::gang {

namespace coordinator {
struct Begun {
  friend bool operator==(const Begun&, const Begun&) = default;
};
struct Granted {
  friend bool operator==(const Granted&, const Granted&) = default;
};
struct Kept {
  friend bool operator==(const Kept&, const Kept&) = default;
};
struct Returned {
  friend bool operator==(const Returned&, const Returned&) = default;
};
struct Closed {
  Side side = Side::kInvalid;
  Incarnation k = 0;
  friend bool operator==(const Closed&, const Closed&) = default;
};
struct Aborted {
  friend bool operator==(const Aborted&, const Aborted&) = default;
};
struct Asking {
  friend bool operator==(const Asking&, const Asking&) = default;
};
struct Restored {
  bool ordered = false;  // whether all instances are fenced, and the restore from the image was ordered
  friend bool operator==(const Restored&, const Restored&) = default;
};
}  // namespace coordinator

// The statements of a rank that the coordinator has received since its last start.
struct Facts {
  std::optional<Bytes> payload;  // the payload of PREPARED
  bool started = false;          // whether the other side's payload was sent to this rank
  bool precopied = false;
  bool waits = false;  // whether a source waits with BARRIER
  bool never = false;
  bool resumed = false;
  bool returned = false;  // whether the rank continues in the old epoch as n+2
  bool released = false;
  bool verified = false;
  bool committed = false;
  bool ran = false;
  bool owns = false;
  bool relinquished = false;
  bool veto = false;
  bool held = false;
  bool still = false;
  bool lifted = false;
  bool gone = false;
  bool old = false;
  bool fenced = false;
  bool dead = false;      // whether the rank's process has exited
  bool lost = false;      // whether the rank's node is proven dead
  bool answered = false;  // in phase Asking: whether the rank has stated everything that it recorded
  Nanos last_message = 0;
  // For a target: the expiry of the last lease that the coordinator gave it since its start, by the grantor's
  // clock. `lent` is whether there was such a lease.
  Nanos lease_until = 0;
  bool lent = false;
  friend bool operator==(const Facts&, const Facts&) = default;
};

struct CoordinatorState {
  GangInfo info;
  std::variant<coordinator::Begun, coordinator::Granted, coordinator::Kept, coordinator::Returned,
               coordinator::Closed, coordinator::Aborted, coordinator::Restored, coordinator::Asking>
      phase;
  std::map<Party, Facts> facts;  // the facts of all ranks
  // The time by which all leases of the coordinator's earlier lives have expired.
  Nanos earlier_leases_until = 0;
  bool late = false;     // whether the timeout of the migration has passed
  bool settled = false;  // whether the move is settled; remains true once set, even if a rank is lost later
  std::optional<Reason> abort;  // the reason to abort the move
  friend bool operator==(const CoordinatorState&, const CoordinatorState&) = default;
};

struct MigrateRequested {};
struct AbortRequested {
  explicit AbortRequested(Reason cause) : reason(std::move(cause)) {}
  Reason reason;
};
// The operator's confirmation, or a fence command's proof, that a rank's node is dead.
struct PartyLost {
  explicit PartyLost(Party which) : party(which) {}
  Party party;
};

// In phase Asking, states that the rank's earlier statements on this connection are all that it has recorded.
// No message of an earlier coordinator is still on its way to the rank.
struct PartyAnswered {
  explicit PartyAnswered(Party which) : party(which) {}
  Party party;
};

using CoordinatorEvent = std::variant<MigrateRequested, AbortRequested, PartyLost, Message, TimerFired,
                                      RecordFailed, Restarted, PartyAnswered>;

[[nodiscard]] CoordinatorState begin(GangInfo info, Nanos now);
Result<Step<CoordinatorState, Action>> step(const CoordinatorState& state, const CoordinatorEvent& event,
                                            Nanos now, const Timing& timing);
// Restores the state from the newest record. The first event must be Restarted.
Result<CoordinatorState> restore_coordinator(const Record& newest);
// Creates the state for a move that a rank describes and that has no record. The first event must be
// Restarted.
[[nodiscard]] CoordinatorState recover_coordinator(GangInfo info, Nanos now);
[[nodiscard]] bool is_closed(const CoordinatorState& state) noexcept;
// Returns whether the move is closed and every rank knows it, or the restore from the image was ordered.
[[nodiscard]] inline bool is_settled(const CoordinatorState& state) noexcept {
  return state.settled;
}
// Returns whether the record is missing. The ranks are then queried for their statements, and each confirms
// that it has stated everything (PartyAnswered).
[[nodiscard]] inline bool is_asking(const CoordinatorState& state) noexcept {
  return std::holds_alternative<coordinator::Asking>(state.phase);
}
[[nodiscard]] std::string_view phase_name(const CoordinatorState& state) noexcept;

}  // namespace ckpt::gang
