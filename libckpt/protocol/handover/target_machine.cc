// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/handover/target_machine.h"

#include <utility>

#include "libckpt/protocol/handover/handover_stepper.h"
#include "libckpt/protocol/handover/step_checks.h"

namespace ckpt::migration {
namespace {

using namespace target;

class Stepper : private HandoverStepper<TargetState> {
 public:
  Stepper(const TargetState& state, Nanos now, const Timing& timing)
      : HandoverStepper(state, Role::kTarget, now, timing) {}

  Result<Step<TargetState>> run(const TargetEvent& event) {
    const bool possible = std::visit([this](const auto& e) { return on(e); }, event);
    return result(possible, event.index(), "a target");
  }

 private:
  bool uncommitted() { return !in<Committed>() && !in<Relinquished>(); }
  // Returns the phase Committed. Returns null if the target has not committed or is the owner.
  Committed* window() {
    auto* p = in<Committed>();
    return p && !p->owner ? p : nullptr;
  }

  // Relinquishes the migration (SW-5). With `keep_image`, verified bytes stay until the source reports that
  // it continues (SW-13).
  void relinquish(const Reason& reason, bool keep_image) {
    keep_image = keep_image && in<Verified>();
    Record r(s_.info, Role::kTarget, RecordKind::kRelinquished);
    r.reason = reason;
    act(WriteRecord(r));
    send_both(wire::Relinquished(reason));
    if (!keep_image) act(FreeTarget{});
    act(DisarmTimer(Timer::kLease));
    act(keep_image ? Action(ArmTimer(Timer::kPoll, timing_.poll_ms)) : Action(DisarmTimer(Timer::kPoll)));
    act(Report(ReportKind::kGaveUp, 0, reason));
    s_.leaving.reset();
    s_.phase = Relinquished{keep_image, reason};
  }

  void commit_if_due() {
    if (!in<Verified>() || s_.leaving || s_.offered == 0 || s_.lease.k != s_.offered ||
        !lasts(s_.lease, now_, timing_))
      return;
    commit();
  }
  // Writes COMMITTED and orders the instance to run. This is the commit point, with the only fsync in the
  // pause.
  void commit() {
    const Incarnation k = s_.offered;
    act(WriteRecord(Record(s_.info, Role::kTarget, RecordKind::kCommitted, k)));
    act(RunInstance(k, s_.lease.deadline));
    send_both(wire::Committed(k));
    act(DisarmTimer(Timer::kPoll));
    act(ArmTimer(Timer::kLease, timing_.lease_renew_ms));
    s_.phase = Committed{k};
  }

  // Makes the target the owner after RELEASED or CLOSED(target). An owner needs no lease. The target also
  // becomes the owner from VERIFIED if the source's image was given up.
  void become_owner(bool released_received) {
    Committed next{std::max(s_.offered, s_.info.base + 1), true};
    if (const auto* p = in<Committed>()) {
      next = *p;
      next.owner = true;
    }
    next.released_received = released_received;
    Record r(s_.info, Role::kTarget, RecordKind::kCommitted, next.k);
    r.owner = true;
    act(WriteRecord(r));
    if (!next.dead) act(RunInstance(next.k, std::nullopt));
    act(DisarmTimer(Timer::kLease));
    act(DisarmTimer(Timer::kPoll));
    send(Role::kCoordinator, wire::Committed(next.k));
    if (released_received) act(Send(Role::kSource, Role::kCoordinator, wire::Released{}));
    s_.phase = next;
  }

  void ask_for(Incarnation k) {
    ask_lease(s_.lease, k, now_);
    send(Role::kCoordinator, wire::LeaseRequest(k, now_));
    // The coordinator may be unreachable. A waiting source can lend, too (SW-10).
    if (const auto* p = window(); p && p->k == k && !lasts(s_.lease, now_, timing_))
      send(Role::kSource, wire::LeaseRequest(k, now_));
  }

  void restate(Role to) {
    if (in<Ready>() || in<Receiving>()) {
      if (to == Role::kCoordinator) send(to, wire::Prepared(s_.payload));
    } else if (in<Verified>()) {
      if (to == Role::kCoordinator) send(to, wire::Verified{});
    } else if (const auto* c = in<Committed>()) {
      send(to, wire::Committed(c->k));
      if (c->running) send(to, wire::Ran(c->k));
      if (c->released_received && to == Role::kCoordinator) act(Send(Role::kSource, to, wire::Released{}));
    } else if (const auto* r = in<Relinquished>()) {
      send(to, wire::Relinquished(r->reason));
    }
  }

  bool on(const PrepareReceived&) {
    if (!in<Preparing>()) return false;
    act(PrepareStandby{});
    return true;
  }
  bool on(const StandbyReady& e) {
    if (!in<Preparing>()) return true;
    s_.payload = e.payload;
    s_.phase = Ready{};
    restate(Role::kCoordinator);
    return true;
  }
  bool on(const StandbyRefused& e) {
    if (!in<Preparing>()) return true;
    send(Role::kCoordinator, wire::Refused(e.reason));
    relinquish(e.reason, false);
    return true;
  }
  bool on(const FinalVerified&) {
    if (!in<Receiving>()) return !in<Preparing>() && !in<Ready>();
    s_.phase = Verified{};
    commit_if_due();
    if (in<Verified>()) {
      send(Role::kCoordinator, wire::Verified{});
      if (s_.offered != 0) ask_for(s_.offered);
      act(ArmTimer(Timer::kPoll, timing_.poll_ms));
    }
    return true;
  }
  bool on(const EngineFailed& e) {
    // A verified image is complete: the state of the link no longer matters.
    if (uncommitted() && !in<Verified>()) relinquish(e.reason, false);
    return true;
  }
  bool on(const InstanceRuns& e) {
    if (auto* p = in<Committed>(); p && p->k == e.k) state_runs(*p);
    return true;
  }
  void state_runs(Committed& p) {
    if (std::exchange(p.running, true)) return;
    send_both(wire::Ran(p.k));
    act(Report(ReportKind::kRunsAtTarget, p.k));
  }
  // Handles an instance that finished. SW-14 applies only to instances that died. A finished instance never
  // runs again. The target keeps stating RUNS, so that the source releases its memory.
  bool on(const InstanceFinished& e) {
    auto* p = in<Committed>();
    if (!p || p->k != e.k || p->dead) return true;
    state_runs(*p);
    p->dead = true;
    act(Report(ReportKind::kJobDied, p->k, Reason(ErrorCode::kAborted, "The program has exited")));
    return true;
  }
  bool on(const InstanceStopped& e) {
    auto* p = window();
    if (!p || p->k != e.k) return true;
    p->running = false;
    ask_for(std::max(p->k, s_.offered));
    send(Role::kSource, wire::Query{});
    act(Report(ReportKind::kWaits, e.k));
    return true;
  }
  bool on(const InstanceDied& e) {
    auto* p = in<Committed>();
    if (p && p->dead) return true;
    if (uncommitted() || window()) {
      relinquish(e.reason, false);
    } else if (p) {
      p->dead = true;
      p->running = false;
      act(Report(ReportKind::kJobDied, p->k, e.reason));
    } else if (auto* r = in<Relinquished>()) {
      r->image = false;
    }
    return true;
  }
  bool on(const TimerFired& e) {
    switch (e.timer) {
      case Timer::kLease:
        if (const auto* p = in<Committed>(); p && p->owner) return true;
        if (in<Relinquished>() || s_.offered == 0) return true;
        if (in<Committed>()) {
          restate(Role::kCoordinator);
          restate(Role::kSource);
        }
        ask_for(s_.offered);
        act(ArmTimer(Timer::kLease, timing_.lease_renew_ms));
        return true;
      case Timer::kPoll:
        poll();
        return true;
      case Timer::kPause:
      case Timer::kHandover:
      case Timer::kMigration:
        return false;
    }
    return false;
  }
  void poll() {
    if (s_.leaving && (uncommitted() || window())) {
      relinquish(Reason(*s_.leaving), true);
      return;
    }
    if (in<Verified>()) {
      send(Role::kCoordinator, wire::Verified{});
      if (s_.offered != 0) ask_for(s_.offered);
    } else if (const auto* r = in<Relinquished>(); r && r->image) {
      send_both(wire::Query{});
    } else {
      return;
    }
    act(ArmTimer(Timer::kPoll, timing_.poll_ms));
  }
  bool on(const RecordFailed& e) {
    if (uncommitted()) {
      s_.leaving = e.reason;
      act(ArmTimer(Timer::kPoll, timing_.poll_ms));
    }
    // A committed target repeats the record with the next statement that it receives. Its lease timer
    // requests such a statement.
    return true;
  }
  bool on(const Superseded&) {
    if (uncommitted())
      relinquish(Reason(ErrorCode::kAborted, "A later migration of the job has begun"), true);
    else if (window())
      send(Role::kCoordinator, wire::Query{});
    return true;
  }
  bool on(const Restarted&) {
    if (const auto* p = in<Committed>()) {
      if (p->owner) {
        act(RunInstance(p->k, std::nullopt));
        restate(Role::kCoordinator);
        return true;
      }
      s_.offered = p->k;
      // The commit is stated first, because a coordinator that wants an abort lends only to a committed
      // target.
      restate(Role::kCoordinator);
      restate(Role::kSource);
      ask_for(p->k);
      send_both(wire::Query{});
      act(ArmTimer(Timer::kLease, timing_.lease_renew_ms));
    } else if (in<Relinquished>()) {
      act(FreeTarget{});
      restate(Role::kCoordinator);
      restate(Role::kSource);
    }
    return true;
  }

  bool on(const Message& m) {
    if (s_.leaving && uncommitted()) {
      relinquish(Reason(*s_.leaving), true);
      return true;
    }
    return std::visit([&](const auto& body) { return receive(m.from, body); }, m.body);
  }
  bool receive(Role from, const wire::Prepare&) { return restate(from), from == Role::kCoordinator; }
  bool receive(Role from, const wire::Start& body) {
    if (from != Role::kCoordinator) return false;
    if (in<Ready>()) {
      s_.phase = Receiving{};
      act(StartReceiving(body.payload));
    } else if (in<Relinquished>()) {
      restate(from);
    }
    return true;
  }
  bool receive(Role from, const wire::Query& body) {
    if (body.give_up && from == Role::kSource && uncommitted())
      relinquish(body.reason, true);
    else
      restate(from);
    return true;
  }
  bool receive(Role from, const wire::GiveUp& body) {
    if (from != Role::kCoordinator) return false;
    if (uncommitted())
      relinquish(body.reason, true);
    else
      restate(from);
    return true;
  }
  bool receive(Role from, const wire::Aborted& body) {
    if (from != Role::kCoordinator || in<Committed>()) return false;
    if (uncommitted())
      relinquish(body.reason, true);
    else
      restate(from);
    return true;
  }
  bool receive(Role from, const wire::Closed& body) {
    if (from != Role::kCoordinator) return false;
    if (body.side == Side::kTarget) return source_is_gone(from, false);
    if (const auto* p = in<Committed>(); p && p->owner) return false;
    if (in<Relinquished>())
      restate(from);
    else
      relinquish(Reason(ErrorCode::kAborted, "The migration was closed for the source"), true);
    return true;
  }
  bool receive(Role from, const wire::Released&) {
    return from == Role::kSource && source_is_gone(from, true);
  }
  bool source_is_gone(Role from, bool released) {
    if (window() || in<Verified>()) {
      become_owner(released);
    } else if (uncommitted()) {
      relinquish(Reason(ErrorCode::kCorrupt,
                        "The source has given up its image, and the target has no complete image"),
                 false);
    } else {
      if (auto* p = in<Committed>(); p && released) p->released_received = true;
      // Sends only a part of restate(): this is an answer, and the coordinator would answer RUNS.
      if (from == Role::kCoordinator)
        send(from, in<Committed>() ? wire::Body(wire::Committed(in<Committed>()->k))
                                   : wire::Body(wire::Relinquished(in<Relinquished>()->reason)));
    }
    return true;
  }
  bool receive(Role from, const wire::Resumed& body) {
    if (from != Role::kSource) return false;
    // Under a lease the source may run k. Only an owner, or RUNS of a later k, ends a committed target.
    if (window()) return !body.owner || source_goes_on();
    if (const auto* p = in<Committed>()) return !body.owner && body.k < p->k;
    return source_goes_on(body.reason);
  }
  bool receive(Role from, const wire::Ran& body) {
    if (from != Role::kSource) return false;
    if (const auto* p = in<Committed>(); p && (p->owner || body.k < p->k)) return body.k < p->k;
    return source_goes_on();
  }
  bool source_goes_on(const Reason& cause = {}) {
    if (auto* r = in<Relinquished>()) {
      if (r->image) {
        r->image = false;
        act(FreeTarget{});
        act(DisarmTimer(Timer::kPoll));
      }
    } else {
      const Reason unsaid(ErrorCode::kAborted, "The job continues at the source");
      relinquish(cause.text.empty() ? unsaid : cause, false);
    }
    return true;
  }
  bool receive(Role from, const wire::Commit& body) {
    if (from != Role::kCoordinator) return false;
    if (in<Relinquished>()) {
      restate(from);
    } else if (const auto* p = in<Committed>(); p && (p->owner || p->dead || body.k <= p->k)) {
      restate(from);
      if (!p->owner && body.k == p->k && !lasts(s_.lease, now_, timing_)) ask_for(p->k);
    } else if (body.k > s_.offered) {
      s_.offered = body.k;
      ask_for(body.k);
      act(ArmTimer(Timer::kLease, timing_.lease_renew_ms));
    } else if (!lasts(s_.lease, now_, timing_)) {
      ask_for(s_.offered);
    }
    return true;
  }
  bool receive(Role from, const wire::Lease& body) {
    // The source lends a lease only for a committed incarnation. Only the coordinator grants a lease (SW-6).
    const bool grants = from == Role::kCoordinator;
    if (!grants && !window()) return true;
    if (in<Relinquished>() || !accept_lease(s_.lease, body, now_, timing_)) return true;
    if (in<Verified>()) {
      commit_if_due();
    } else if (const auto* p = window()) {
      if (body.k == p->k && !p->dead)
        act(RunInstance(p->k, s_.lease.deadline));
      else if (grants && body.k == s_.offered && body.k > p->k && !p->dead)
        commit();
    }
    return true;
  }
  template <class Body>
  bool receive(Role /*from*/, const Body& /*body*/) {
    return false;
  }
};

}  // namespace

Result<Step<TargetState>> step(const TargetState& state, const TargetEvent& event, Nanos now,
                               const Timing& timing) {
  auto made = Stepper(state, now, timing).run(event);
  if (made) check_step(state, *made, now);
  return made;
}

Result<TargetState> restore_target(const Record& newest) {
  TargetState state{newest.info, {}};
  if (newest.kind == RecordKind::kCommitted) {
    state.phase = Committed{newest.k, newest.owner};
    state.offered = newest.k;
    return state;
  }
  if (newest.kind == RecordKind::kRelinquished) {
    state.phase = Relinquished{false, newest.reason};
    return state;
  }
  return Error(ErrorCode::kCorrupt,
               "Record " + std::string(to_string(newest.kind)) + " is unexpected in a target's journal");
}

bool is_closed(const TargetState& state) noexcept {
  const auto* p = std::get_if<Committed>(&state.phase);
  return std::holds_alternative<Relinquished>(state.phase) || (p != nullptr && p->owner);
}

bool holds_job(const TargetState& state) noexcept {
  const auto* p = std::get_if<Committed>(&state.phase);
  return p != nullptr && !p->owner;
}

std::string_view phase_name(const TargetState& state) noexcept {
  static constexpr std::string_view kNames[] = {"PREPARING", "READY",     "RECEIVING",
                                                "VERIFIED",  "COMMITTED", "RELINQUISHED"};
  return kNames[state.phase.index()];
}

}  // namespace ckpt::migration
