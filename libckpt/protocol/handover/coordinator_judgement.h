// SPDX-License-Identifier: Apache-2.0
// The conclusions that the coordinator of a handover draws from its state.
// Threads: none. Ownership: borrows the state and the timing, which outlive it. Errors: none.
#pragma once

#include <cstddef>
#include <string>

#include "libckpt/protocol/handover/coordinator_machine.h"

namespace ckpt::migration {

// Returns the index of a side in the arrays of a CoordinatorState.
constexpr std::size_t index_of(Role party) {
  return party == Role::kSource ? 0 : 1;
}
constexpr std::size_t index_of(Side side) {
  return side == Side::kSource ? 0 : 1;
}

class CoordinatorJudgement {
 public:
  CoordinatorJudgement(const CoordinatorState& state, Nanos now, const Timing& timing)
      : s_(state), now_(now), timing_(timing) {}

  [[nodiscard]] bool answered_lately(Role party) const;
  // Returns the side that may run the job as incarnation k.
  [[nodiscard]] Role holder(Incarnation k) const;
  // Returns whether the records here may be an older copy that lacks later decisions.
  [[nodiscard]] bool unsure() const { return s_.unsure_until != 0; }
  // Returns whether the grant is withheld. A wanted abort is first requested from the target (SW-7).
  [[nodiscard]] bool withheld(const coordinator::Granted& g) const;
  // Returns whether the side may get a lease. A restarted coordinator with incomplete records could otherwise
  // lend to one side while the other has a lease.
  [[nodiscard]] bool may_lend_to(Role party) const;
  // Returns true if `m` shows that there were later records than those here.
  [[nodiscard]] bool knows_more(const Message& m) const;
  [[nodiscard]] bool is_closed_for_target() const;
  // Returns whether an operator may resolve a granted migration at this side. The source's image must not be
  // discarded for a target image that is not known to be complete.
  [[nodiscard]] bool may_resolve_at(Side side) const;
  // Returns the reason for which a migration cannot be resolved.
  [[nodiscard]] std::string why_not_resolved() const;

 private:
  const CoordinatorState& s_;
  const Nanos now_;
  const Timing& timing_;
};

}  // namespace ckpt::migration
