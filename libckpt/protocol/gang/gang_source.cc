// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/gang/gang_source.h"

#include "libckpt/protocol/gang/gang_stepper.h"
#include "libckpt/protocol/gang/step_checks.h"

namespace ckpt::gang {
namespace {

class SourceStepper : private Stepper<SourceState> {
 public:
  SourceStepper(const SourceState& state, Nanos now, const Timing& timing)
      : Stepper(state, Party(Role::kSource, state.rank), now, timing) {}

  Result<Step<SourceState, Action>> run(const SourceEvent& event) {
    const bool possible = std::visit([this](const auto& e) { return on(e); }, event);
    return result(possible, event.index(), phase_name(s_));
  }

 private:
  bool before_barrier() {
    return in<source::Preparing>() || in<source::Ready>() || in<source::Precopy>() || in<source::Holding>();
  }
  Party target() const { return {Role::kTarget, s_.rank}; }

  // Returns the time limit of the handover in milliseconds. It includes the time limit of communicators that
  // are made during the pause.
  std::uint32_t handover_timeout_ms() const {
    return timing_.handover_timeout_ms + (s_.info.overlaps ? 0 : s_.info.communicators_ms);
  }

  // ---- ways to leave the migration ----
  void leave(const Reason& reason) {
    const bool holds = in<source::Holding>() != nullptr;
    s_.phase = source::Owner{s_.info.base, true, true, reason};
    write_never(reason);
    act(StopCopy{});
    if (holds) act(ResumeRank(s_.info.base));
    disarm(Timer::kPause);
    disarm(Timer::kPoll);
  }
  void write_never(const Reason& reason) {
    Record never = record(RecordKind::kNever);
    never.reason = reason;
    act(WriteRecord(never));
    send_to_everyone(Never(reason));
  }
  // Resumes the rank in the old epoch, only on statements of other parties. An exited rank cannot resume: the
  // gang is then restored.
  void go_back(Incarnation k, const Reason& reason) {
    const auto* barrier = in<source::Barrier>();
    if (barrier == nullptr || barrier->dead) return;
    s_.phase = source::Owner{k, false, true, reason};
    write(RecordKind::kResumed, k);
    act(StopCopy{});
    act(ResumeRank(k));
    send_to_everyone(Resumed(k));
    disarm_waiting();
  }
  void release_if_due() {
    const auto* barrier = in<source::Barrier>();
    const bool may = s_.info.staying.empty() ? s_.ran.size() == s_.info.moved.size() : s_.swapped;
    if (barrier == nullptr || !may || (barrier->still && !s_.kept)) return;
    release();
  }
  void release() {
    s_.phase = source::Released{};
    write(RecordKind::kReleased);
    state_released();
    act(FreeSource{});
    disarm_waiting();
  }
  void state_released() {
    send_to_coordinator(Released{});
    send(target(), Released{});
  }
  void fence() {
    if (in<source::Released>() || in<source::Fenced>()) return restate(Party());
    s_.phase = source::Fenced{};
    write(RecordKind::kFenced);
    act(StopCopy{});
    act(EndRank{});
    disarm_waiting();
    disarm(Timer::kPause);
  }
  void disarm_waiting() {
    disarm(Timer::kPoll);
    disarm(Timer::kHandover);
  }

  void restate(const Party& to) {
    if (const auto* p = in<source::Barrier>()) {
      send(to, Waiting(p->dead));
      if (p->still) send(to, HeldStill{});
      if (!p->sent && !p->gives_up) send_prepared_to_source(to);
    } else if (auto* owner = in<source::Owner>()) {
      record_if_due(*owner);
      if (owner->never)
        send(to, Never(owner->reason));
      else
        send(to, Resumed(owner->k));
    } else if (in<source::Released>()) {
      send(to, Released{});
    } else if (const auto* fenced = in<source::Fenced>()) {
      if (fenced->ended)
        send(to, Fenced{});
      else if (to == Party())
        act(EndRank{});  // repeated, since this agent may have started after the first order
    } else if (in<source::Holding>() && to != Party()) {
      send_prepared_to_source(to);
    } else if (to == Party() && !in<source::Preparing>()) {
      send(to, Prepared(s_.payload));
      if (const auto* precopy = in<source::Precopy>();
          (precopy && precopy->first_round_done) || in<source::Holding>())
        send(to, Precopied{});
    }
  }
  // Informs a source that this rank still copies: a source that waits for the handover also waits for this
  // rank's last copy.
  void send_prepared_to_source(const Party& to) {
    if (to.role == Role::kSource) send(to, Prepared());
  }
  void wait_for_handover() {
    in<source::Barrier>()->sent = true;
    arm(Timer::kHandover, handover_timeout_ms());
  }
  void record_if_due(source::Owner& owner) {
    if (owner.recorded) return;
    owner.recorded = true;
    write_never(owner.reason);
  }
  // Queries the other parties while the coordinator is unreachable. Another party may have the statement that
  // lets this source release its memory or return.
  void ask_others() {
    send_to_coordinator(Waiting(in<source::Barrier>()->dead));
    if (in<source::Barrier>()->still) send_to_coordinator(HeldStill{});
    const auto& cause = in<source::Barrier>()->gives_up;
    for (const Party& party : s_.info.ranks()) {
      if (party == self_) continue;
      if (cause && party.role == Role::kTarget) send(party, GiveUp(*cause));
      send(party, Query{});
    }
    poll_again();
  }

  // ---- events ----
  bool on(const PrepareReceived&) {
    if (!in<source::Preparing>()) return false;
    act(PrepareSource{});
    return true;
  }
  bool on(const SourceReady& e) {
    if (!in<source::Preparing>()) return true;
    s_.payload = e.payload;
    s_.phase = source::Ready{};
    restate(Party());
    return true;
  }
  bool on(const SourceRefused& e) {
    if (in<source::Preparing>()) leave(e.reason);
    return true;
  }
  bool on(const FirstRoundDone&) {
    auto* p = in<source::Precopy>();
    if (p == nullptr) return !in<source::Preparing>() && !in<source::Ready>();
    p->first_round_done = true;
    send_to_coordinator(Precopied{});
    poll_again();
    return true;
  }
  bool on(const PrecopyConverged&) {
    auto* p = in<source::Precopy>();
    if (p == nullptr) return !in<source::Preparing>() && !in<source::Ready>();
    p->converged = true;
    hold_if_due();
    return true;
  }
  void hold_if_due() {
    const auto* p = in<source::Precopy>();
    if (p == nullptr || !p->converged || !p->granted) return;
    s_.phase = source::Holding{};
    act(HoldRank{});
    arm(Timer::kPause, timing_.pause_timeout_ms);
    disarm(Timer::kPoll);
  }
  bool on(const RankHeld&) {
    if (const auto* owner = in<source::Owner>()) {  // the rank was held after this party had returned to the
                                                    // old epoch
      act(ResumeRank(owner->k));
      return true;
    }
    if (!in<source::Holding>()) return !before_barrier();
    s_.phase = source::Barrier{};
    disarm(Timer::kPause);
    act(RunFinalRound{});
    write(RecordKind::kBarrier);
    act(ReleaseManifest{});
    send_to_coordinator(Waiting(false));
    poll_again();
    return true;
  }
  bool on(const FinalDataAcknowledged&) {
    if (in<source::Barrier>()) wait_for_handover();
    return !before_barrier();
  }
  bool on(const EngineFailed& e) {
    if (before_barrier()) {
      leave(e.reason);
    } else if (auto* p = in<source::Barrier>()) {
      send_to_coordinator(Failed(e.reason));
      if (!p->gives_up) p->gives_up = e.reason;
      ask_others();
    }
    return true;
  }
  bool on(const InstanceDied& e) {
    if (before_barrier()) {
      leave(e.reason);
    } else if (auto* p = in<source::Barrier>()) {
      p->dead = true;
      send_to_coordinator(Waiting(true));
    }
    return true;
  }
  // FENCED is stated once the rank has ended: the gang may then be restored from its image (GANG-12).
  bool on(const RankEnded&) {
    if (auto* fenced = in<source::Fenced>(); fenced != nullptr && !std::exchange(fenced->ended, true))
      restate(Party());
    return true;
  }
  bool on(const TimerFired& e) {
    if (e.timer == Timer::kPause && in<source::Holding>())
      leave(Reason(ErrorCode::kTimedOut, "The ranks did not stop at the same step in time"));
    if (e.timer == Timer::kHandover && in<source::Barrier>()) {
      auto& cause = in<source::Barrier>()->gives_up;
      if (!cause)
        cause = Reason(ErrorCode::kTimedOut, "The source waited too long for the handover to finish");
      ask_others();
    }
    if (e.timer == Timer::kPoll) poll();
    return e.timer != Timer::kMigration;
  }
  void poll() {
    if (in<source::Barrier>()) return ask_others();
    if (auto* owner = in<source::Owner>()) return record_if_due(*owner);
    const auto* p = in<source::Precopy>();
    if (p == nullptr || p->granted) return;
    send_to_coordinator(Precopied{});
    poll_again();
  }
  bool on(const RecordFailed& e) {
    if (!before_barrier()) {
      poll_again();
      return true;
    }
    const bool holds = in<source::Holding>() != nullptr;
    s_.phase = source::Owner{s_.info.base, true, false, e.reason};
    act(StopCopy{});
    if (holds) act(ResumeRank(s_.info.base));
    disarm(Timer::kPause);
    send_to_coordinator(Failed(e.reason));
    poll_again();
    return true;
  }
  bool on(const Restarted&) {
    if (before_barrier()) {
      leave(Reason(ErrorCode::kAborted, "The source's agent was restarted"));
    } else if (in<source::Barrier>()) {
      wait_for_handover();
      ask_others();
    } else if (const auto* owner = in<source::Owner>()) {
      act(ResumeRank(owner->k));
      restate(Party());
    } else if (in<source::Released>()) {
      state_released();
      act(FreeSource{});
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
  bool receive(const Party& from, const Start& body) {
    if (from != Party()) return false;
    if (!in<source::Ready>()) {
      restate(from);
      return true;
    }
    s_.phase = source::Precopy{};
    act(StartPrecopy(body.payload));
    return true;
  }
  bool receive(const Party& from, const Prepared&) {
    const auto* p = in<source::Barrier>();
    if (from.role == Role::kSource && p != nullptr && p->sent && !p->gives_up)
      arm(Timer::kHandover, handover_timeout_ms());
    return true;
  }
  bool receive(const Party& from, const Granted& body) {
    if (from != Party() || body.k != s_.info.base + 1) return false;
    if (auto* p = in<source::Precopy>()) {
      p->granted = true;
      hold_if_due();
    } else {
      restate(from);
    }
    return true;
  }
  bool receive(const Party& from, const Query&) {
    restate(from);
    return true;
  }
  bool receive(const Party& from, const GiveUp& body) {
    if (from != Party()) return false;
    if (before_barrier())
      leave(body.reason);
    else
      restate(from);
    return true;
  }
  bool receive(const Party& from, const Aborted& body) {
    if (from != Party()) return false;
    return ends_here(from, s_.info.base, body.reason);
  }
  bool receive(const Party& from, const Closed& body) {
    if (from != Party()) return false;
    if (body.side == Side::kSource)
      return ends_here(from, body.k, Reason(ErrorCode::kAborted, "The migration was closed for the sources"));
    if (in<source::Barrier>())
      release();
    else
      restate(from);
    return !before_barrier();
  }
  bool receive(const Party& from, const Returned& body) {
    if (from != Party()) return false;
    return ends_here(from, body.k, Reason(ErrorCode::kAborted, "The ranks return to the sources"));
  }
  // Receives vetoes. The next two functions receive statements of sources that left or went back. After each
  // of them no target can ever run.
  bool receive(const Party& from, const Relinquished& body) {
    return from.role == Role::kTarget && (!body.veto || ends_here(from, s_.info.base, body.reason));
  }
  bool receive(const Party& from, const Never& body) {
    return from.role == Role::kSource && ends_here(from, s_.info.base, body.reason);
  }
  bool receive(const Party& from, const Resumed& body) {
    return from.role == Role::kSource &&
           ends_here(from, body.k, Reason(ErrorCode::kAborted, "Another source resumed"));
  }
  bool ends_here(const Party& from, Incarnation k, const Reason& reason) {
    if (before_barrier())
      leave(reason);
    else if (in<source::Barrier>())
      go_back(k, in<source::Barrier>()->gives_up.value_or(reason));
    else if (from == Party())
      restate(from);
    return true;
  }
  bool receive(const Party& from, const Gone&) {
    if (from.role != Role::kBystander) return false;
    s_.swapped = true;
    release_if_due();
    return true;
  }
  bool receive(const Party& from, const Ran&) {
    if (from.role != Role::kTarget) return false;
    s_.ran.insert(from.rank);
    release_if_due();
    return true;
  }
  bool receive(const Party& from, const Kept&) {
    if (from != Party()) return false;
    s_.kept = true;
    release_if_due();
    return true;
  }
  bool receive(const Party& from, const Withdraw&) {
    if (from != Party()) return false;
    auto* p = in<source::Barrier>();
    if (p != nullptr && s_.info.staying.empty() && !p->still) {
      p->still = true;
      write(RecordKind::kHeldStill);
    }
    restate(from);
    return true;
  }
  bool receive(const Party& from, const Restore&) {
    if (from != Party()) return false;
    fence();
    return true;
  }
  // Ignores all other messages: each statement is relayed to all parties, but not every party needs it.
  template <class Other>
  bool receive(const Party& /*from*/, const Other& /*body*/) {
    return true;
  }
};

}  // namespace

Result<Step<SourceState, Action>> step(const SourceState& state, const SourceEvent& event, Nanos now,
                                       const Timing& timing) {
  auto made = SourceStepper(state, now, timing).run(event);
  if (made) check_step(state, *made);
  return made;
}

Result<SourceState> restore_source(const GangInfo& info, std::uint32_t rank, const Record* newest) {
  SourceState state{info, rank, source::Preparing{}, {}, false, {}, false};
  if (newest == nullptr) return state;
  switch (newest->kind) {
    case RecordKind::kBarrier:
      state.phase = source::Barrier{};
      return state;
    case RecordKind::kHeldStill:
      state.phase = source::Barrier{true, false, {}};
      return state;
    case RecordKind::kNever:
      state.phase = source::Owner{info.base, true, true, newest->reason};
      return state;
    case RecordKind::kResumed:
      state.phase = source::Owner{newest->k, false, true, newest->reason};
      return state;
    case RecordKind::kReleased:
      state.phase = source::Released{};
      return state;
    case RecordKind::kFenced:
      state.phase = source::Fenced{};
      return state;
    default:
      return Error(ErrorCode::kCorrupt,
                   "Record " + name_of(*newest) + " is unexpected in a source's journal");
  }
}

bool is_closed(const SourceState& state) noexcept {
  return std::holds_alternative<source::Owner>(state.phase) ||
         std::holds_alternative<source::Released>(state.phase) ||
         std::holds_alternative<source::Fenced>(state.phase);
}

std::string_view phase_name(const SourceState& state) noexcept {
  static constexpr std::string_view kNames[] = {"PREPARING", "READY", "PRECOPY",  "HOLDING",
                                                "BARRIER",   "OWNER", "RELEASED", "FENCED"};
  return kNames[state.phase.index()];
}

}  // namespace ckpt::gang
