// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/gang/gang_target.h"

#include <algorithm>

#include "libckpt/protocol/gang/gang_stepper.h"
#include "libckpt/protocol/gang/step_checks.h"

namespace ckpt::gang {
namespace {

class TargetStepper : private Stepper<TargetState> {
 public:
  TargetStepper(const TargetState& state, Nanos now, const Timing& timing)
      : Stepper(state, Party(Role::kTarget, state.rank), now, timing) {}

  Result<Step<TargetState, Action>> run(const TargetEvent& event) {
    const bool possible = std::visit([this](const auto& e) { return on(e); }, event);
    return result(possible, event.index(), phase_name(s_));
  }

 private:
  bool is_lead() const { return self_ == s_.info.lead(); }
  bool moves_beside(std::uint32_t rank) const {
    return rank != s_.rank && std::binary_search(s_.info.moved.begin(), s_.info.moved.end(), rank);
  }
  bool stays(std::uint32_t rank) const {
    return std::binary_search(s_.info.staying.begin(), s_.info.staying.end(), rank);
  }
  Incarnation k() const { return s_.info.base + 1; }
  bool unpromised() { return !in<target::Promised>() && !in<target::Relinquished>(); }
  bool is_owner() {
    const auto* p = in<target::Promised>();
    return p != nullptr && p->owner;
  }
  bool lease_lasts() const { return s_.lease.k == k() && migration::lasts(s_.lease, now_, timing_); }

  // ---- ways to leave the migration ----
  void relinquish(const Reason& reason, bool has_died = false) {
    const bool veto = unpromised();
    s_.phase = target::Relinquished{veto, reason, veto || has_died};
    s_.leaving.reset();
    Record r = record(RecordKind::kRelinquished);
    r.veto = veto;
    r.reason = reason;
    act(WriteRecord(r));
    act(FreeTarget{});
    state_relinquished(*in<target::Relinquished>());
    disarm(Timer::kLease);
    disarm(Timer::kPoll);
  }
  // States that the target has given up. A veto ends the move for every party. After a promise the instance
  // may run, so the target waits until it has exited: the coordinator may then count on that (GANG-8,
  // GANG-12).
  void state_relinquished(const target::Relinquished& left) {
    if (!left.ended) return;
    const Relinquished said(left.veto, left.reason);
    if (left.veto)
      send_to_everyone(said);
    else
      send_to_coordinator(said);
  }

  // ---- steps to GO ----
  void promise_if_due() {
    if (!in<target::Verified>() || s_.leaving) return;
    if (!s_.info.overlaps && !s_.has_communicators) return;
    if (!is_lead()) return promise(RecordKind::kReady);
    const bool all = s_.ready.size() + 1 == s_.info.moved.size() && s_.held.size() == s_.info.staying.size();
    if (!all || !lease_lasts()) return;
    s_.committed = true;
    promise(RecordKind::kCommitted);
    act(EnterGate(k()));
  }
  void promise(RecordKind kind) {
    s_.phase = target::Promised{};
    write(kind, k());
    send_to_coordinator(kind == RecordKind::kReady ? Body(Ready(k())) : Body(Committed(k())));
    if (kind == RecordKind::kReady)
      send(s_.info.lead(), Ready(k()));
    else
      send_to_all(Role::kTarget, Committed(k()));
    poll_again();
  }
  void enter_if_due() {
    const auto* p = in<target::Promised>();
    if (p != nullptr && s_.committed && !p->in_gate) act(EnterGate(k()));
  }
  void go_if_due() {
    const auto* p = in<target::Promised>();
    if (!is_lead() || p == nullptr || !p->in_gate || s_.go) return;
    if (s_.gates.size() + 1 != s_.info.moved.size()) return;
    s_.go = true;
    send_go();
    open_if_due();
  }
  void send_go() {
    send_to_all(Role::kTarget, Go(k()));
    send_to_all(Role::kBystander, Go(k()));
  }
  void open_if_due() {
    const auto* p = in<target::Promised>();
    if (p == nullptr || !p->in_gate || p->finished || !s_.go) return;
    if (p->owner)
      act(OpenGate(k(), std::nullopt));
    else if (lease_lasts())
      act(OpenGate(k(), s_.lease.deadline));
  }
  void become_owner() {
    auto* p = in<target::Promised>();
    if (p == nullptr || p->owner) return;
    p->owner = true;
    s_.committed = s_.go = true;  // no source frees its memory before these facts hold
    Record r = record(is_lead() ? RecordKind::kCommitted : RecordKind::kReady, k());
    r.owner = true;
    act(WriteRecord(r));
    state_owner();
    disarm(Timer::kLease);
    enter_if_due();
    open_if_due();
    if (is_lead()) send_go();
  }
  // Reports ownership, but only when the instance is known to exist: after the report the coordinator may
  // have nothing more to decide.
  void state_owner() {
    if (const auto* p = in<target::Promised>(); p->owner && p->in_gate) send_to_coordinator(Owns(k()));
  }
  void ask_for_lease() {
    if (!s_.granted || is_owner()) return;
    migration::ask_lease(s_.lease, k(), now_);
    send_to_coordinator(LeaseRequest(k(), now_));
  }

  // ---- statements ----
  void restate(const Party& to) {
    if (const auto* r = in<target::Relinquished>()) {
      if (r->ended) return send(to, Relinquished(r->veto, r->reason));
      if (to == Party())
        act(FreeTarget{});  // repeated, since this agent may have started after the first
                            // order
      return;
    }
    const auto* p = in<target::Promised>();
    if (p == nullptr) {
      if (to != Party() || in<target::Preparing>()) return;
      send(to, Prepared(s_.payload));
      if (in<target::Verified>()) send(to, Verified{});
      return;
    }
    send(to, is_lead() ? Body(Committed(k())) : Body(Ready(k())));
    if (p->in_gate) send(to, InGate(k()));
    if (is_lead() && s_.go) send(to, Go(k()));
    if (p->running) send(to, Ran(k()));
    if (to == Party()) state_owner();
  }
  // Requests the missing lease and the missing statements of other parties.
  void poll() {
    if (s_.leaving && unpromised()) return relinquish(Reason(*s_.leaving));
    if (in<target::Verified>()) {
      ask_for_lease();
      ask_missing();
    } else if (const auto* p = in<target::Promised>(); p != nullptr && !p->owner) {
      restate(Party());
      enter_if_due();
      if (is_lead())
        ask_missing();
      else
        send(s_.info.lead(), Query{});
      if (!is_lead()) restate(s_.info.lead());
      send({Role::kSource, s_.rank}, Query{});
      if (s_.go && is_lead()) send_go();
    } else {
      return;
    }
    poll_again();
  }
  void ask_missing() {
    for (const Party& party : s_.info.ranks()) {
      const bool asked = (party.role == Role::kTarget && !s_.gates.contains(party.rank)) ||
                         (party.role == Role::kBystander && !s_.held.contains(party.rank)) ||
                         party.role == Role::kSource;
      if (asked && party != self_) send(party, Query{});
    }
  }

  // ---- events ----
  bool on(const PrepareReceived&) {
    if (!in<target::Preparing>()) return false;
    act(PrepareStandby{});
    return true;
  }
  bool on(const StandbyReady& e) {
    if (!in<target::Preparing>()) return true;
    s_.payload = e.payload;
    s_.phase = target::Standby{};
    restate(Party());
    return true;
  }
  bool on(const StandbyRefused& e) {
    if (in<target::Preparing>()) relinquish(e.reason);
    return true;
  }
  bool on(const FinalVerified&) {
    if (!in<target::Receiving>()) return !in<target::Preparing>() && !in<target::Standby>();
    s_.phase = target::Verified{};
    poll_again();
    promise_if_due();
    if (!in<target::Verified>()) return true;
    send_to_coordinator(Verified{});
    ask_for_lease();
    return true;
  }
  bool on(const EngineFailed& e) {
    // A verified image is complete: the state of the link no longer matters.
    if (unpromised() && !in<target::Verified>()) relinquish(e.reason);
    return true;
  }
  bool on(const CommunicatorsReady&) {
    s_.has_communicators = true;
    promise_if_due();
    return true;
  }
  bool on(const CommunicatorsFailed& e) {
    if (unpromised()) relinquish(e.reason);
    return true;
  }
  bool on(const RankInGate& e) {
    auto* p = in<target::Promised>();
    if (p == nullptr || e.k != k() || p->in_gate) return true;
    p->in_gate = true;
    if (!is_lead()) send(s_.info.lead(), InGate(k()));
    state_owner();
    go_if_due();
    open_if_due();
    return true;
  }
  bool on(const InstanceRuns& e) {
    auto* p = in<target::Promised>();
    if (p == nullptr || e.k != k()) return true;
    state_ran(*p);
    return true;
  }
  void state_ran(target::Promised& p) {
    p.running = true;
    send_to_coordinator(Ran(k()));
    send_to_all(Role::kSource, Ran(k()));
  }
  // Handles an instance that has finished. SW-14 applies only to instances that died. A finished instance had
  // passed its gate, so GO was decided. The target repeats its statements and does not run the instance
  // again.
  bool on(const InstanceFinished& e) {
    auto* p = in<target::Promised>();
    if (p == nullptr || e.k != k() || p->finished) return true;
    p->finished = p->in_gate = true;
    s_.committed = s_.go = true;
    if (!is_lead()) send(s_.info.lead(), InGate(k()));
    state_ran(*p);
    state_owner();
    if (is_lead()) send_go();
    return true;
  }
  bool on(const InstanceStopped& e) {
    auto* p = in<target::Promised>();
    if (p != nullptr && e.k == k()) ask_for_lease();
    return true;
  }
  bool on(const InstanceDied& e) {
    const auto* p = in<target::Promised>();
    const bool has_finished = p != nullptr && p->finished;
    if (!has_finished && !in<target::Relinquished>()) relinquish(e.reason, true);
    return true;
  }
  bool on(const RankEnded&) {
    auto* left = in<target::Relinquished>();
    if (left != nullptr && !std::exchange(left->ended, true)) state_relinquished(*left);
    return true;
  }
  bool on(const TimerFired& e) {
    if (e.timer == Timer::kPoll) poll();
    if (e.timer == Timer::kLease && !in<target::Relinquished>() && !is_owner()) {
      ask_for_lease();
      arm(Timer::kLease, timing_.lease_renew_ms);
    }
    return e.timer == Timer::kPoll || e.timer == Timer::kLease;
  }
  bool on(const RecordFailed& e) {
    if (unpromised()) s_.leaving = e.reason;
    if (in<target::Promised>())
      act(EnterGate(k()));  // if the instance has exited, this makes the driver
                            // report the exit again
    poll_again();
    return true;
  }
  bool on(const Restarted&) {
    if (unpromised()) {
      relinquish(Reason(ErrorCode::kAborted, "The target's agent was restarted"));
    } else if (const auto* r = in<target::Relinquished>()) {
      act(FreeTarget{});
      state_relinquished(*r);
    } else {
      s_.granted = true;
      if (is_lead()) s_.committed = true;
      if (is_owner()) s_.committed = s_.go = true;
      enter_if_due();
      restate(Party());
      ask_for_lease();
      arm(Timer::kLease, timing_.lease_renew_ms);
      poll_again();
      ask_missing();
    }
    return true;
  }

  // ---- messages ----
  bool on(const Message& m) {
    if (s_.leaving && unpromised()) {
      relinquish(Reason(*s_.leaving));
      return true;
    }
    return std::visit([&](const auto& body) { return receive(m.from, body); }, m.body);
  }
  bool receive(const Party& from, const Prepare&) {
    restate(from);
    return from == Party();
  }
  bool receive(const Party& from, const Start& body) {
    if (from != Party()) return false;
    if (!in<target::Standby>()) {
      restate(from);
      return true;
    }
    s_.phase = target::Receiving{};
    act(StartReceiving(body.payload));
    return true;
  }
  bool receive(const Party& from, const Granted& body) {
    if (from != Party() || body.k != k()) return false;
    if (in<target::Relinquished>()) {
      restate(from);
    } else if (!std::exchange(s_.granted, true)) {
      if (!s_.info.overlaps) act(PrepareCommunicators{});
      ask_for_lease();
      arm(Timer::kLease, timing_.lease_renew_ms);
    } else {
      restate(from);
      if (!lease_lasts()) ask_for_lease();  // no rank is held until all targets have a lease
    }
    return true;
  }
  bool receive(const Party& from, const Lease& body) {
    if (from != Party()) return false;
    if (in<target::Relinquished>() || !migration::accept_lease(s_.lease, body, now_, timing_)) return true;
    promise_if_due();
    if (!is_owner()) open_if_due();
    return true;
  }
  bool receive(const Party& from, const Ready& body) {
    if (from.role != Role::kTarget || !moves_beside(from.rank)) return false;
    if (!is_lead() || body.k != k()) return true;
    s_.ready.insert(from.rank);
    promise_if_due();
    return true;
  }
  bool receive(const Party& from, const Held&) {
    if (from.role != Role::kBystander || !stays(from.rank)) return false;
    if (!is_lead()) return true;
    s_.held.insert(from.rank);
    promise_if_due();
    return true;
  }
  bool receive(const Party& from, const Committed&) {
    if (from != s_.info.lead()) return false;
    s_.committed = true;
    enter_if_due();
    return true;
  }
  bool receive(const Party& from, const InGate&) {
    if (from.role != Role::kTarget || !moves_beside(from.rank)) return false;
    if (is_lead()) {
      s_.gates.insert(from.rank);
      go_if_due();
    }
    return true;
  }
  bool receive(const Party& from, const Go&) {
    if (from != s_.info.lead()) return false;
    s_.committed = s_.go = true;
    enter_if_due();
    open_if_due();
    return true;
  }
  bool receive(const Party& from, const Released&) {
    if (from.role != Role::kSource) return false;
    if (from.rank == s_.rank) become_owner();
    return true;
  }
  bool receive(const Party& from, const Query&) {
    restate(from);
    return true;
  }
  bool receive(const Party& from, const GiveUp& body) {
    if (from != Party() && from.role != Role::kSource) return false;
    if (unpromised())
      relinquish(body.reason);
    else
      restate(from);
    return true;
  }
  bool receive(const Party& from, const Aborted& body) {
    return from == Party() && ends_here(from, body.reason);
  }
  bool receive(const Party& from, const Closed& body) {
    if (from != Party()) return false;
    if (body.side == Side::kSource)
      return ends_here(from, Reason(ErrorCode::kAborted, "The migration was closed for the sources"));
    if (in<target::Relinquished>() || is_owner())
      restate(from);
    else
      become_owner();
    return true;
  }
  bool receive(const Party& from, const Returned&) {
    return from == Party() && ends_here(from, Reason(ErrorCode::kAborted, "The ranks return to the sources"));
  }
  bool receive(const Party& from, const Restore&) {
    return from == Party() &&
           ends_here(from, Reason(ErrorCode::kAborted, "The job is restored from its image"));
  }
  bool receive(const Party& from, const Relinquished& body) {
    return from.role == Role::kTarget && (!body.veto || ends_here(from, body.reason));
  }
  bool receive(const Party& from, const Never& body) {
    return from.role == Role::kSource && ends_here(from, body.reason);
  }
  // Receives OLD of a bystander. The bystander was never held, or the other parties decided so. The lead has
  // no HELD of this bystander and will not receive one.
  bool receive(const Party& from, const Old&) {
    if (from.role != Role::kBystander) return false;
    if (unpromised()) relinquish(Reason(ErrorCode::kAborted, to_text(from) + " continues in the old epoch"));
    return true;
  }
  bool receive(const Party& from, const Resumed&) {
    return from.role == Role::kSource && ends_here(from, Reason(ErrorCode::kAborted, "The sources resumed"));
  }
  bool ends_here(const Party& from, const Reason& reason) {
    if (!in<target::Relinquished>())
      relinquish(reason);
    else if (from == Party())
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

Result<Step<TargetState, Action>> step(const TargetState& state, const TargetEvent& event, Nanos now,
                                       const Timing& timing) {
  auto made = TargetStepper(state, now, timing).run(event);
  if (made) check_step(state, *made, now);
  return made;
}

Result<TargetState> restore_target(const GangInfo& info, std::uint32_t rank, const Record* newest) {
  TargetState state;
  state.info = info;
  state.rank = rank;
  if (newest == nullptr) return state;
  switch (newest->kind) {
    case RecordKind::kReady:
    case RecordKind::kCommitted:
      state.phase = target::Promised{newest->owner, false, false};
      return state;
    case RecordKind::kRelinquished:
      state.phase = target::Relinquished{newest->veto, newest->reason, newest->veto};
      return state;
    default:
      return Error(ErrorCode::kCorrupt,
                   "Record " + name_of(*newest) + " is unexpected in a target's journal");
  }
}

bool is_closed(const TargetState& state) noexcept {
  const auto* p = std::get_if<target::Promised>(&state.phase);
  return std::holds_alternative<target::Relinquished>(state.phase) || (p != nullptr && p->owner);
}

std::string_view phase_name(const TargetState& state) noexcept {
  static constexpr std::string_view kNames[] = {"PREPARING", "STANDBY",  "RECEIVING",
                                                "VERIFIED",  "PROMISED", "RELINQUISHED"};
  return kNames[state.phase.index()];
}

}  // namespace ckpt::gang
