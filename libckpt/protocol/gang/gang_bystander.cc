// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/gang/gang_bystander.h"

#include "libckpt/protocol/gang/gang_stepper.h"
#include "libckpt/protocol/gang/step_checks.h"

namespace ckpt::gang {
namespace {

class BystanderStepper : private Stepper<BystanderState> {
 public:
  BystanderStepper(const BystanderState& state, Nanos now, const Timing& timing)
      : Stepper(state, Party(Role::kBystander, state.rank), now, timing) {}

  Result<Step<BystanderState, Action>> run(const BystanderEvent& event) {
    const bool possible = std::visit([this](const auto& e) { return on(e); }, event);
    return result(possible, event.index(), phase_name(s_));
  }

 private:
  Incarnation k() const { return s_.info.base + 1; }
  // Returns whether the rank waits for a decision of the other parties. It has its new and its old
  // communicators.
  bool waits() { return in<bystander::Held>() || in<bystander::Still>() || in<bystander::Lifted>(); }

  void go_old(Incarnation incarnation) {
    s_.phase = bystander::Old{incarnation, true};
    write(RecordKind::kOld, incarnation);
    act(DiscardCommunicators{});
    act(ResumeRank(incarnation));
    state_old(incarnation);
    disarm(Timer::kPause);
    disarm(Timer::kPoll);
  }
  void state_old(Incarnation incarnation) {
    send_to_coordinator(Old(incarnation));
    send(s_.info.lead(), Old(incarnation));
  }
  void hold_if_due() {
    const auto* p = in<bystander::Joining>();
    if (p == nullptr || !p->has_communicators || !p->is_held) return;
    s_.phase = bystander::Held{};
    write(RecordKind::kHeld);
    disarm(Timer::kPause);
    send(s_.info.lead(), Held(k()));
    send_to_coordinator(Held(k()));
    poll_again();
  }
  void swap() {
    s_.phase = bystander::Gone{};
    write(RecordKind::kGone, k());
    act(SwapEpoch(k()));
    send_to_everyone(Gone(k()));
    disarm(Timer::kPoll);
  }
  void fence() {
    if (in<bystander::Fenced>()) return restate(Party());
    s_.phase = bystander::Fenced{};
    write(RecordKind::kFenced);
    act(EndRank{});
    disarm(Timer::kPause);
    disarm(Timer::kPoll);
  }

  void restate(const Party& to) {
    if (s_.dead && to == Party()) send(to, Dead(*s_.dead));
    if (const auto* joining = in<bystander::Joining>()) {
      if (to == Party() && joining->is_ready) send(to, Prepared());
    } else if (in<bystander::Held>()) {
      send(to, Held(k()));
    } else if (in<bystander::Still>()) {
      send(to, HeldStill{});
    } else if (in<bystander::Lifted>()) {
      send(to, Lifted{});
    } else if (in<bystander::Gone>()) {
      send(to, Gone(k()));
    } else if (auto* old = in<bystander::Old>()) {
      record_if_due(*old);
      send(to, Old(old->k));
    } else if (in<bystander::Fenced>()->ended) {
      send(to, Fenced{});
    } else if (to == Party()) {
      act(EndRank{});  // repeated, since this agent may have started after the first order
    }
  }
  void record_if_due(bystander::Old& old) {
    if (!std::exchange(old.recorded, true)) write(RecordKind::kOld, old.k);
  }
  // Repeats the rank's statements and queries the other ranks, since the coordinator may be unreachable. The
  // lead has GO; sources and targets have vetoes.
  void poll() {
    if (auto* old = in<bystander::Old>(); old != nullptr && !old->recorded) return restate(Party());
    if (!waits()) return;
    restate(Party());
    restate(s_.info.lead());
    for (const Party& party : s_.info.ranks())
      if (party.role != Role::kBystander) send(party, Query{});
    poll_again();
  }

  // ---- events ----
  bool on(const PrepareReceived&) {
    if (!in<bystander::Joining>()) return false;
    if (s_.info.overlaps)
      act(PrepareCommunicators{});
    else
      act(PrepareRank{});
    return true;
  }
  bool on(const RankReady&) {
    auto* p = in<bystander::Joining>();
    if (p == nullptr) return true;
    p->is_ready = true;
    send_to_coordinator(Prepared());
    return true;
  }
  bool on(const CommunicatorsReady&) {
    auto* p = in<bystander::Joining>();
    if (p == nullptr) return true;
    p->has_communicators = true;
    if (!std::exchange(p->is_ready, true)) send_to_coordinator(Prepared());
    hold_if_due();
    return true;
  }
  bool on(const CommunicatorsFailed& e) {
    if (!in<bystander::Joining>()) return true;
    send_to_coordinator(Failed(e.reason));
    go_old(s_.info.base);
    return true;
  }
  bool on(const RankHeld&) {
    if (const auto* old = in<bystander::Old>()) {  // the rank was held after this party had returned to the
                                                   // old epoch
      act(ResumeRank(old->k));
      return true;
    }
    auto* p = in<bystander::Joining>();
    if (p == nullptr) return true;
    const bool is_first = !std::exchange(p->is_held, true);
    if (is_first && !s_.info.overlaps) {
      act(PrepareCommunicators{});
      disarm(Timer::kPause);  // the communicators have their own deadline
    }
    hold_if_due();
    return true;
  }
  bool on(const InstanceDied& e) {
    s_.dead = e.reason;
    send_to_coordinator(Dead(e.reason));
    return true;
  }
  // FENCED is stated once the rank has ended: the gang may then be restored from its image (GANG-12).
  bool on(const RankEnded&) {
    if (auto* fenced = in<bystander::Fenced>(); fenced != nullptr && !std::exchange(fenced->ended, true))
      restate(Party());
    return true;
  }
  bool on(const TimerFired& e) {
    if (e.timer == Timer::kPause && in<bystander::Joining>()) {
      send_to_coordinator(
          Failed(Reason(ErrorCode::kTimedOut, "The ranks did not stop at the same step in time")));
      go_old(s_.info.base);
    }
    if (e.timer == Timer::kPoll) poll();
    return e.timer == Timer::kPause || e.timer == Timer::kPoll;
  }
  bool on(const RecordFailed&) {
    if (in<bystander::Joining>()) {
      s_.phase = bystander::Old{s_.info.base, false};
      act(DiscardCommunicators{});
      act(ResumeRank(s_.info.base));
      disarm(Timer::kPause);
    }
    poll_again();
    return true;
  }
  bool on(const Restarted&) {
    if (in<bystander::Joining>()) {
      go_old(s_.info.base);
    } else if (waits()) {
      poll();
    } else if (in<bystander::Gone>()) {
      act(SwapEpoch(k()));
      send_to_everyone(Gone(k()));
    } else if (const auto* old = in<bystander::Old>()) {
      act(ResumeRank(old->k));
      state_old(old->k);
    } else {
      act(EndRank{});
    }
    return true;
  }

  // ---- messages ----
  bool on(const Message& m) {
    return std::visit([&](const auto& body) { return receive(m.from, body); }, m.body);
  }
  bool receive(const Party& from, const Prepare&) {
    restate(from);
    return from == Party();
  }
  bool receive(const Party& from, const Granted&) {
    if (from != Party()) return false;
    if (!in<bystander::Joining>() || std::exchange(s_.granted, true)) {
      restate(from);
      return true;
    }
    act(HoldRank{});
    arm(Timer::kPause, timing_.pause_timeout_ms);
    return true;
  }
  bool receive(const Party& from, const Go&) {
    if (from != s_.info.lead()) return false;
    if (in<bystander::Held>() || in<bystander::Lifted>())
      swap();
    else
      restate(from);
    return true;
  }
  bool receive(const Party& from, const Withdraw&) {
    if (from != Party()) return false;
    const auto* joining = in<bystander::Joining>();
    if (joining != nullptr && !joining->is_held) {
      go_old(s_.info.base);
    } else if (joining != nullptr || in<bystander::Held>()) {
      s_.phase = bystander::Still{};
      write(RecordKind::kHeldStill);
      disarm(Timer::kPause);
      send_to_coordinator(HeldStill{});
      poll_again();
    } else {
      restate(from);
    }
    return true;
  }
  bool receive(const Party& from, const Kept&) {
    if (from != Party()) return false;
    lift();
    return true;
  }
  void lift() {
    if (in<bystander::Still>()) {
      s_.phase = bystander::Lifted{};
      write(RecordKind::kLifted);
      poll_again();
    }
    restate(Party());
  }
  bool receive(const Party& from, const Closed& body) {
    if (from != Party()) return false;
    if (body.side == Side::kSource) return goes_old(from, body.k);
    lift();
    return true;
  }
  bool receive(const Party& from, const Returned& body) { return from == Party() && goes_old(from, body.k); }
  bool receive(const Party& from, const Aborted&) { return from == Party() && goes_old(from, s_.info.base); }
  bool receive(const Party& from, const GiveUp&) {
    if (from != Party()) return false;
    if (in<bystander::Joining>())
      go_old(s_.info.base);
    else
      restate(from);
    return true;
  }
  bool receive(const Party& from, const Relinquished& body) {
    return from.role == Role::kTarget && (!body.veto || goes_old(from, s_.info.base));
  }
  bool receive(const Party& from, const Never&) {
    return from.role == Role::kSource && goes_old(from, s_.info.base);
  }
  bool receive(const Party& from, const Resumed& body) {
    return from.role == Role::kSource && goes_old(from, body.k);
  }
  bool goes_old(const Party& from, Incarnation incarnation) {
    if (in<bystander::Joining>() || waits())
      go_old(incarnation);
    else if (from == Party())
      restate(from);
    return true;
  }
  bool receive(const Party& from, const Restore&) {
    if (from != Party()) return false;
    fence();
    return true;
  }
  bool receive(const Party& from, const Query&) {
    restate(from);
    return true;
  }
  // Ignores all other messages: each statement is relayed to all parties, but not every party needs it.
  template <class Other>
  bool receive(const Party& /*from*/, const Other& /*body*/) {
    return true;
  }
};

}  // namespace

Result<Step<BystanderState, Action>> step(const BystanderState& state, const BystanderEvent& event, Nanos now,
                                          const Timing& timing) {
  auto made = BystanderStepper(state, now, timing).run(event);
  if (made) check_step(state, *made);
  return made;
}

Result<BystanderState> restore_bystander(const GangInfo& info, std::uint32_t rank, const Record* newest) {
  BystanderState state;
  state.info = info;
  state.rank = rank;
  if (newest == nullptr) return state;
  switch (newest->kind) {
    case RecordKind::kHeld:
      state.phase = bystander::Held{};
      return state;
    case RecordKind::kHeldStill:
      state.phase = bystander::Still{};
      return state;
    case RecordKind::kLifted:
      state.phase = bystander::Lifted{};
      return state;
    case RecordKind::kGone:
      state.phase = bystander::Gone{};
      return state;
    case RecordKind::kOld:
      state.phase = bystander::Old{newest->k, true};
      return state;
    case RecordKind::kFenced:
      state.phase = bystander::Fenced{};
      return state;
    default:
      return Error(ErrorCode::kCorrupt,
                   "Record " + name_of(*newest) + " is unexpected in a bystander's journal");
  }
}

bool is_closed(const BystanderState& state) noexcept {
  return std::holds_alternative<bystander::Gone>(state.phase) ||
         std::holds_alternative<bystander::Old>(state.phase) ||
         std::holds_alternative<bystander::Fenced>(state.phase);
}

std::string_view phase_name(const BystanderState& state) noexcept {
  static constexpr std::string_view kNames[] = {"JOINING", "HELD", "HELD_STILL", "LIFTED",
                                                "GONE",    "OLD",  "FENCED"};
  return kNames[state.phase.index()];
}

}  // namespace ckpt::gang
