// SPDX-License-Identifier: Apache-2.0
// The part of a step that all machines of the gang share. It collects actions and sends statements to other
// parties.
// Threads: none. Ownership: exists for one step.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "libckpt/protocol/gang/gang_types.h"

namespace ckpt::gang {

template <class State>
class Stepper {
 protected:
  Stepper(const State& state, Party self, Nanos now, const Timing& timing)
      : s_(state), self_(self), now_(now), timing_(timing) {}

  template <class Phase>
  Phase* in() {
    return std::get_if<Phase>(&s_.phase);
  }
  template <class Phase>
  const Phase* in() const {
    return std::get_if<Phase>(&s_.phase);
  }
  void act(Action action) { out_.push_back(std::move(action)); }
  void send(const Party& to, Body body) { act(Send(to, std::move(body))); }
  void send_to_coordinator(Body body) { send(Party(), std::move(body)); }
  void send_to_all(Role role, const Body& body) {
    for (const Party& party : s_.info.ranks()) {
      if (party.role == role && party != self_) send(party, body);
    }
  }
  void send_to_everyone(const Body& body) {
    if (self_ != Party()) send_to_coordinator(body);
    for (const Role role : {Role::kSource, Role::kTarget, Role::kBystander}) send_to_all(role, body);
  }
  void arm(Timer timer, std::uint32_t ms) { act(ArmTimer(timer, ms)); }
  void poll_again() { arm(Timer::kPoll, timing_.poll_ms); }
  void disarm(Timer timer) { act(DisarmTimer(timer)); }
  void write(RecordKind kind, Incarnation k = 0) { act(WriteRecord(record(kind, k))); }
  Record record(RecordKind kind, Incarnation k = 0) const { return {s_.info, self_, kind, k}; }

  Result<Step<State, Action>> result(bool possible, std::size_t event, std::string_view phase) {
    if (possible) return Step<State, Action>{std::move(s_), std::move(out_)};
    return Error(ErrorCode::kInvalidArgument, "Event " + std::to_string(event) + " is impossible at " +
                                                  to_text(self_) + " in " + std::string(phase) +
                                                  " of migration " + std::to_string(s_.info.migration));
  }

  State s_;
  const Party self_;
  const Nanos now_;
  const Timing& timing_;
  std::vector<Action> out_;
};

}  // namespace ckpt::gang
