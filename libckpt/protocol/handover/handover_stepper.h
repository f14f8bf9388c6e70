// SPDX-License-Identifier: Apache-2.0
// The part of a step that the three machines of a handover share: a copy of the state, and the actions so
// far.
// Threads: none. Ownership: exists for one step.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "libckpt/protocol/handover/handover_types.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::migration {

template <class State>
class HandoverStepper {
 protected:
  HandoverStepper(const State& state, Role self, Nanos now, const Timing& timing)
      : s_(state), self_(self), now_(now), timing_(timing) {}

  template <class P>
  P* in() {
    return std::get_if<P>(&s_.phase);
  }
  void act(Action action) { out_.push_back(std::move(action)); }
  void send(Role to, wire::Body body) { act(Send(self_, to, std::move(body))); }
  // Sends to both other parties. The coordinator is always the first of them, and the source comes before the
  // target.
  void send_both(const wire::Body& body) {
    send(self_ == Role::kCoordinator ? Role::kSource : Role::kCoordinator, body);
    send(self_ == Role::kTarget ? Role::kSource : Role::kTarget, body);
  }
  Record record(RecordKind kind, Incarnation k = 0) const { return {s_.info, self_, kind, k}; }

  // Returns the step. If the event is not possible, returns an error that names the event and the phase
  // (`where`).
  Result<Step<State>> result(bool possible, std::size_t event, std::string_view where) {
    if (possible) return Step<State>{std::move(s_), std::move(out_)};
    return Error(ErrorCode::kInvalidArgument, "Event " + std::to_string(event) + " is impossible at " +
                                                  std::string(where) + " in " + std::string(phase_name(s_)) +
                                                  " of migration " + wire::migration_text(s_.info.migration));
  }

  State s_;
  const Role self_;
  const Nanos now_;
  const Timing& timing_;
  std::vector<Action> out_;
};

}  // namespace ckpt::migration
