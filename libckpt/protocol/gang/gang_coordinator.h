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
// Asking: the record was lost with the coordinator's disk. Each rank is asked for all that it has stated. From that follows
// more than Granted where a decision had reached a rank: a return, Kept, or Restored.
//
// It keeps nothing but its record and its leases. What the ranks have stated decides each step, and is asked for again
// after a restart. A veto closes for the sources. A bystander that has swapped excludes the return for good. Restored is
// only where neither set of ranks can go on. The gang's image runs once every instance is fenced.
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
  bool ordered = false;  // all are fenced, and the image was ordered to run
  friend bool operator==(const Restored&, const Restored&) = default;
};
}  // namespace coordinator

// The statements of a rank, as far as this life of the coordinator knows them.
struct Facts {
  std::optional<Bytes> payload;  // prepared
  bool started = false;          // the peer's payload was sent
  bool precopied = false;
  bool waits = false;  // a source: with BARRIER
  bool never = false;
  bool resumed = false;
  bool returned = false;  // it goes on in the old epoch as n+2
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
  bool dead = false;      // its process is gone
  bool lost = false;      // its node is proven dead
  bool answered = false;  // while Asking: it has stated all it has recorded
  Nanos last_message = 0;
  // A target's: the last lease that it may have been given, as the grantor sees it, and whether it was in this life.
  Nanos lease_until = 0;
  bool lent = false;
  friend bool operator==(const Facts&, const Facts&) = default;
};

struct CoordinatorState {
  GangInfo info;
  std::variant<coordinator::Begun, coordinator::Granted, coordinator::Kept, coordinator::Returned,
               coordinator::Closed, coordinator::Aborted, coordinator::Restored, coordinator::Asking>
      phase;
  std::map<Party, Facts> facts;   // of all ranks
  Nanos others_leases_until = 0;  // of a coordinator whose record is lost: what it had decided is not known
  bool late = false;              // the time for the migration is over
  bool settled = false;           // once known, also if a rank is lost after that
  std::optional<Reason> abort;    // why it is to end without a move
  friend bool operator==(const CoordinatorState&, const CoordinatorState&) = default;
};

struct MigrateRequested {};
struct AbortRequested {
  explicit AbortRequested(Reason why) : reason(std::move(why)) {}
  Reason reason;
};
// The operator's word, or a fence command's proof, that a rank's node is dead.
struct PartyLost {
  explicit PartyLost(Party which) : party(which) {}
  Party party;
};

// While Asking: what this rank stated before this, on the same connection, is all that it has recorded. Nothing of a
// coordinator before this one is on its way to it any more.
struct PartyAnswered {
  explicit PartyAnswered(Party which) : party(which) {}
  Party party;
};

using CoordinatorEvent = std::variant<MigrateRequested, AbortRequested, PartyLost, Message, TimerFired,
                                      RecordFailed, Restarted, PartyAnswered>;

[[nodiscard]] CoordinatorState begin(GangInfo info, Nanos now);
Result<Step<CoordinatorState, Action>> step(const CoordinatorState& state, const CoordinatorEvent& event,
                                            Nanos now, const Timing& timing);
// Restarted is fed first.
Result<CoordinatorState> restore_coordinator(const Record& newest);
// A rank describes the move, and no record is left of it. Restarted is fed first.
[[nodiscard]] CoordinatorState recover_coordinator(GangInfo info, Nanos now);
[[nodiscard]] bool is_closed(const CoordinatorState& state) noexcept;
// Closed, and every rank knows it, or its image was ordered to run.
[[nodiscard]] inline bool is_settled(const CoordinatorState& state) noexcept {
  return state.settled;
}
// No record is left: ranks are asked what they have stated, and answer that they have stated all (PartyAnswered).
[[nodiscard]] inline bool is_asking(const CoordinatorState& state) noexcept {
  return std::holds_alternative<coordinator::Asking>(state.phase);
}
[[nodiscard]] std::string_view phase_name(const CoordinatorState& state) noexcept;

}  // namespace ckpt::gang
