// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/handover/source_machine.h"

#include "libckpt/protocol/handover/handover_stepper.h"
#include "libckpt/protocol/handover/step_checks.h"

namespace ckpt::migration {
namespace {

using namespace source;

template <class... F>
struct Overload : F... {
  using F::operator()...;
};
template <class... F>
Overload(F...) -> Overload<F...>;  // clang 14 needs this deduction guide; g++ does not

// The source's machine during one step. Handlers return false for impossible events.
class Stepper : private HandoverStepper<SourceState> {
 public:
  Stepper(const SourceState& state, Nanos now, const Timing& timing)
      : HandoverStepper(state, Role::kSource, now, timing) {}

  Result<Step<SourceState>> run(const SourceEvent& event) {
    const bool possible = std::visit([this](const auto& e) { return on(e); }, event);
    return result(possible, event.index(), "a source");
  }

 private:
  bool before_barrier() { return in<Preparing>() || in<Ready>() || in<Precopy>() || in<Pausing>(); }

  void write_never_barrier(const Owner& owner) {
    Record r = record(RecordKind::kResumed, owner.k);
    r.owner = r.never_barrier = true;
    r.reason = owner.reason;
    act(WriteRecord(r));
    send_both(wire::Resumed(owner.k, true, true, owner.reason));
  }

  // Leaves before BARRIER. The record makes the decision final: this migration never sends a manifest.
  void leave(const Reason& reason, bool own_failure) {
    const bool was_pausing = in<Pausing>() != nullptr;
    const bool was_preparing = in<Preparing>() != nullptr;
    if (own_failure && !was_preparing) send(Role::kCoordinator, wire::Failed(reason));
    if (own_failure && was_preparing) send(Role::kCoordinator, wire::Refused(reason));
    act(StopCopy{});
    if (was_pausing) act(RunInstance(s_.info.base, std::nullopt));
    Owner owner{s_.info.base, true, true, false, reason};
    write_never_barrier(owner);
    act(DisarmTimer(Timer::kPause));
    act(DisarmTimer(Timer::kPoll));
    act(Report(ReportKind::kGaveUp, s_.info.base, reason));
    s_.phase = std::move(owner);
  }

  void pause_if_due() {
    auto* precopy = in<Precopy>();
    if (!precopy->converged || !precopy->granted) return;
    act(PauseJob{});
    act(ArmTimer(Timer::kPause, timing_.pause_timeout_ms));
    s_.phase = Pausing{};
  }

  // Makes the source the permanent owner of the job, from BARRIER or Leased.
  void become_owner(Incarnation k, bool dead, const Reason& reason) {
    Record r = record(RecordKind::kResumed, k);
    r.owner = true;
    r.reason = reason;
    act(WriteRecord(r));
    if (!dead) act(RunInstance(k, std::nullopt));
    send_both(wire::Resumed(k, true, false, reason));
    act(StopCopy{});
    disarm_waiting();
    act(Report(dead ? ReportKind::kJobDied : ReportKind::kRunsAtSource, k));
    s_.phase = Owner{k, false, true, dead, reason};
  }

  void release() {
    act(WriteRecord(record(RecordKind::kReleased)));
    send_both(wire::Released{});
    act(FreeSource{});
    disarm_waiting();
    act(Report(ReportKind::kReleased));
    s_.phase = Released{};
  }

  void disarm_waiting() {
    act(DisarmTimer(Timer::kPoll));
    act(DisarmTimer(Timer::kHandover));
    act(DisarmTimer(Timer::kLease));
  }

  // Returns the time at which a lease that this side grants now has certainly expired (SW-9).
  Nanos end_of_lending() const {
    return now_ + static_cast<Nanos>(timing_.lend_term_ms + timing_.lease_drift_ms) * kNanosPerMs;
  }

  void ask_for(HeldLease& lease, Incarnation k) {
    ask_lease(lease, k, now_);
    send(Role::kCoordinator, wire::LeaseRequest(k, now_));
  }

  // Repeats the statement that the record makes. Without a record, repeats the progress, which is volatile.
  void restate(Role to) {
    std::visit(Overload{[](const Preparing&) {}, [&](const Ready&) { send(to, wire::Prepared(s_.payload)); },
                        [&](const Precopy& p) {
                          send(to, wire::Prepared(s_.payload));
                          if (p.first_round_done) send(to, wire::Precopied{});
                        },
                        [&](const Pausing&) { send(to, wire::Prepared(s_.payload)); },
                        [&](const Barrier&) {
                          // The query informs the coordinator that this side has recorded BARRIER and waits.
                          if (to == Role::kCoordinator) send(to, wire::Query{});
                        },
                        [&](const Leased& p) {
                          send(to, wire::Resumed(p.k, false, false));
                          if (p.running) send(to, wire::Ran(p.k));
                        },
                        [&](const Owner& p) {
                          if (p.recorded) send(to, wire::Resumed(p.k, true, p.never_barrier, p.reason));
                        },
                        [&](const Released&) { send(to, wire::Released{}); }},
               s_.phase);
    retry_unrecorded();
  }
  void retry_unrecorded() {
    if (auto* p = in<Owner>(); p != nullptr && !p->recorded) {
      p->recorded = true;
      write_never_barrier(*p);
      act(DisarmTimer(Timer::kPoll));
    }
  }

  bool on(const PrepareReceived&) {
    if (!in<Preparing>()) return false;
    act(PrepareSource{});
    return true;
  }
  bool on(const SourceReady& e) {
    if (!in<Preparing>()) return true;
    s_.payload = e.payload;
    s_.phase = Ready{};
    restate(Role::kCoordinator);
    return true;
  }
  bool on(const SourceRefused& e) {
    if (in<Preparing>()) leave(e.reason, true);
    return true;
  }
  bool on(const FirstRoundDone&) {
    auto* p = in<Precopy>();
    if (!p) return !in<Preparing>() && !in<Ready>();
    p->first_round_done = true;
    send(Role::kCoordinator, wire::Precopied{});
    act(ArmTimer(Timer::kPoll, timing_.poll_ms));
    return true;
  }
  bool on(const PrecopyConverged&) {
    auto* p = in<Precopy>();
    if (!p) return !in<Preparing>() && !in<Ready>();
    p->converged = true;
    pause_if_due();
    return true;
  }
  bool on(const JobPaused&) {
    if (in<Pausing>()) {
      act(DisarmTimer(Timer::kPause));
      act(RunFinalRound{});
      act(WriteRecord(record(RecordKind::kBarrier)));
      act(ReleaseManifest{});
      act(ArmTimer(Timer::kPoll, timing_.poll_ms));
      s_.phase = Barrier{};
      return true;
    }
    // The job reached the barrier after the pause had been canceled.
    if (const auto* p = in<Owner>()) {
      act(RunInstance(p->k, std::nullopt));
      return true;
    }
    return false;
  }
  bool on(const FinalDataAcknowledged&) {
    if (!in<Barrier>()) return !before_barrier();
    act(ArmTimer(Timer::kHandover, timing_.handover_timeout_ms));
    return true;
  }
  bool on(const EngineFailed& e) {
    if (before_barrier()) {
      leave(e.reason, true);
    } else if (auto* p = in<Barrier>()) {
      // Only the target knows now whether it has all data. This message requests that the target give up if
      // data is missing.
      send(Role::kCoordinator, wire::Failed(e.reason));
      give_up(*p, e.reason);
      act(Report(ReportKind::kWaits, 0, e.reason));
    }
    return true;
  }
  bool on(const InstanceRuns& e) {
    auto* p = in<Leased>();
    if (!p || p->k != e.k || p->running) return true;
    p->running = true;
    send_both(wire::Ran(e.k));
    act(Report(ReportKind::kRunsAtSource, e.k));
    return true;
  }
  bool on(const InstanceStopped& e) {
    auto* p = in<Leased>();
    if (!p || p->k != e.k) return true;
    p->running = false;
    act(Report(ReportKind::kWaits, e.k));
    return true;
  }
  bool on(const InstanceDied& e) {
    if (before_barrier()) {
      leave(e.reason, true);
      std::get<Owner>(s_.phase).dead = true;
      act(Report(ReportKind::kJobDied, s_.info.base, e.reason));
    } else if (auto* b = in<Barrier>()) {
      b->dead = true;
    } else if (auto* l = in<Leased>()) {
      l->dead = true;
      l->running = false;
    } else if (auto* o = in<Owner>(); o && !o->dead) {
      o->dead = true;
      act(Report(ReportKind::kJobDied, o->k, e.reason));
    }
    return true;
  }
  bool on(const TimerFired& e) {
    switch (e.timer) {
      case Timer::kPause:
        if (in<Pausing>())
          leave(Reason(ErrorCode::kTimedOut, "The job reached no barrier within " +
                                                 std::to_string(timing_.pause_timeout_ms) + " ms"),
                true);
        return true;
      case Timer::kHandover:
        if (auto* p = in<Barrier>()) {
          give_up(*p, Reason(ErrorCode::kTimedOut, "The source waited too long for the handover to finish"));
          act(Report(ReportKind::kWaits));
        }
        return true;
      case Timer::kPoll:
        poll();
        return true;
      case Timer::kLease:
        if (auto* p = in<Leased>()) {
          ask_for(p->lease, std::max(p->k, p->offered));
          restate(Role::kCoordinator);
          restate(Role::kTarget);
          act(ArmTimer(Timer::kLease, timing_.lease_renew_ms));
        }
        return true;
      case Timer::kMigration:
        return false;
    }
    return false;
  }
  // Gives up the handover; only the first reason is stored.
  void give_up(Barrier& p, const Reason& cause) {
    if (!p.gives_up) p.gives_up = cause;
    ask_target(p);
  }
  void ask_target(const Barrier& p) {
    send(Role::kTarget, p.dead ? wire::Query{} : wire::Query(*p.gives_up));
  }
  void poll() {
    if (const auto* precopy = in<Precopy>()) {
      if (precopy->granted) return;
      send(Role::kCoordinator, wire::Precopied{});
    } else if (auto* p = in<Barrier>()) {
      send(Role::kCoordinator, wire::Query{});
      if (p->gives_up) ask_target(*p);
      if (p->offered != 0) ask_for(p->lease, p->offered);
    } else {
      retry_unrecorded();
      return;
    }
    act(ArmTimer(Timer::kPoll, timing_.poll_ms));
  }

  bool on(const RecordFailed& e) {
    if (before_barrier()) {
      const bool was_pausing = in<Pausing>() != nullptr;
      s_.phase = Owner{s_.info.base, true, false, false, e.reason};
      // The failure is sent first. The target's mover detects the end of the copy itself and reports it, but
      // its report is not the reason.
      send(Role::kCoordinator, wire::Failed(e.reason));
      act(StopCopy{});
      if (was_pausing) act(RunInstance(s_.info.base, std::nullopt));
      act(DisarmTimer(Timer::kPause));
      act(ArmTimer(Timer::kPoll, timing_.poll_ms));
    } else if (in<Owner>()) {
      act(ArmTimer(Timer::kPoll, timing_.poll_ms));
    }
    return true;
  }
  bool on(const Superseded&) {
    if (before_barrier())
      leave(Reason(ErrorCode::kAborted, "A later migration of the job has begun"), false);
    else if (in<Barrier>() || in<Leased>())
      send(Role::kCoordinator, wire::Query{});
    return true;
  }
  bool on(const Restarted&) {
    if (auto* b = in<Barrier>()) {
      b->lent_until = end_of_lending();
      send_both(wire::Query{});
      act(ArmTimer(Timer::kPoll, timing_.poll_ms));
      act(ArmTimer(Timer::kHandover, timing_.handover_timeout_ms));
    } else if (auto* p = in<Leased>()) {
      ask_for(p->lease, p->k);
      restate(Role::kCoordinator);
      act(ArmTimer(Timer::kLease, timing_.lease_renew_ms));
    } else if (const auto* o = in<Owner>()) {
      if (!o->never_barrier) act(RunInstance(o->k, std::nullopt));
      restate(Role::kCoordinator);
    } else if (in<Released>()) {
      send_both(wire::Released{});
      act(FreeSource{});
    }
    return true;
  }

  bool on(const Message& m) {
    return std::visit([&](const auto& body) { return receive(m.from, body); }, m.body);
  }
  bool receive(Role from, const wire::Prepare&) { return restate(from), from == Role::kCoordinator; }
  bool receive(Role from, const wire::Start& body) {
    if (from != Role::kCoordinator) return false;
    if (in<Ready>()) {
      s_.phase = Precopy{};
      act(StartPrecopy(body.payload));
    } else if (in<Owner>() || in<Released>()) {
      restate(from);
    }
    return true;
  }
  bool receive(Role from, const wire::Granted& body) {
    if (from != Role::kCoordinator || body.k != s_.info.base + 1) return false;
    if (auto* p = in<Precopy>()) {
      p->granted = true;
      pause_if_due();
    }
    return true;
  }
  bool receive(Role from, const wire::Query&) {
    restate(from);
    return true;
  }
  bool receive(Role from, const wire::GiveUp& body) {
    if (from != Role::kCoordinator) return false;
    if (before_barrier())
      leave(body.reason, false);
    else
      restate(from);
    return true;
  }
  bool receive(Role from, const wire::Aborted& body) {
    return from == Role::kCoordinator && ends_here(from, body.reason);
  }
  bool receive(Role from, const wire::Closed& body) {
    if (from != Role::kCoordinator) return false;
    if (body.side == Side::kSource)
      return ends_here(from, Reason(ErrorCode::kAborted, "The migration was closed for the source"));
    // The source's image is void (SW-15, second half), or the target already received RELEASED.
    if (in<Barrier>() || in<Leased>())
      release();
    else if (in<Released>())
      restate(from);
    else
      return false;
    return true;
  }
  bool receive(Role from, const wire::Relinquished& body) {
    return from == Role::kTarget && ends_here(from, body.reason);
  }
  // Handles ABORTED, CLOSED(source) or RELINQUISHED. After every one of these statements, the target never
  // runs (again).
  bool ends_here(Role from, const Reason& reason) {
    if (before_barrier()) {
      leave(reason, false);
    } else if (const auto* b = in<Barrier>()) {
      become_owner(s_.info.base, b->dead, b->gives_up ? *b->gives_up : reason);
    } else if (const auto* l = in<Leased>()) {
      become_owner(l->k, l->dead, reason);
    } else if (from == Role::kCoordinator) {
      restate(from);
    }
    return true;
  }
  bool receive(Role from, const wire::Ran& body) {
    if (from != Role::kTarget || before_barrier()) return false;
    if (in<Barrier>()) {
      release();
    } else if (const auto* l = in<Leased>()) {
      if (body.k > l->k) release();
    } else if (const auto* o = in<Owner>()) {
      return body.k < o->k && !o->never_barrier;
    } else {
      restate(Role::kTarget);
      restate(Role::kCoordinator);
    }
    return true;
  }
  bool receive(Role from, const wire::Committed&) {
    if (from != Role::kTarget || before_barrier()) return false;
    if (in<Released>()) restate(from);
    return true;
  }
  bool receive(Role from, const wire::Commit& body) {
    if (from != Role::kCoordinator) return false;
    if (auto* b = in<Barrier>(); b && body.k > std::max(s_.info.base, b->offered)) {
      b->offered = body.k;
      ask_for(b->lease, body.k);
    } else if (auto* l = in<Leased>(); l && body.k > std::max(l->k, l->offered)) {
      l->offered = body.k;
      ask_for(l->lease, body.k);
    } else if (in<Owner>() || in<Released>()) {
      restate(from);
    }
    return true;
  }
  // Handles a request for a lease (SW-10). Only a target that has committed and whose lease has expired sends
  // it.
  bool receive(Role from, const wire::LeaseRequest& body) {
    if (from != Role::kTarget || before_barrier()) return false;
    if (auto* b = in<Barrier>(); b && body.k > s_.info.base) {
      b->lent_until = end_of_lending();
      send(from, wire::Lease(body.k, body.sent_at_ns, timing_.lend_term_ms));
    } else {
      restate(from);
    }
    return true;
  }
  bool receive(Role from, const wire::Lease& body) {
    if (from != Role::kCoordinator) return false;
    if (auto* b = in<Barrier>()) {
      const bool may_run = now_ >= b->lent_until && !b->dead;
      if (accept_lease(b->lease, body, now_, timing_) && body.k == b->offered && may_run)
        resume_leased(HeldLease(b->lease));
    } else if (auto* l = in<Leased>()) {
      if (!accept_lease(l->lease, body, now_, timing_) || l->dead) return true;
      if (body.k == l->k)
        act(RunInstance(l->k, l->lease.deadline));
      else if (body.k == l->offered)
        resume_leased(HeldLease(l->lease));
    }
    return true;
  }
  void resume_leased(HeldLease lease) {
    const Incarnation k = lease.k;
    act(WriteRecord(record(RecordKind::kResumed, k)));
    act(RunInstance(k, lease.deadline));
    send_both(wire::Resumed(k, false, false));
    act(StopCopy{});
    act(DisarmTimer(Timer::kPoll));
    act(DisarmTimer(Timer::kHandover));
    act(ArmTimer(Timer::kLease, timing_.lease_renew_ms));
    s_.phase = Leased{k, false, false, k, std::move(lease)};
  }
  // Rejects messages that no source receives.
  template <class Body>
  bool receive(Role /*from*/, const Body& /*body*/) {
    return false;
  }
};

}  // namespace

Result<Step<SourceState>> step(const SourceState& state, const SourceEvent& event, Nanos now,
                               const Timing& timing) {
  auto made = Stepper(state, now, timing).run(event);
  if (made) check_step(state, *made, now);
  return made;
}

Result<SourceState> restore_source(const Record& newest) {
  SourceState state{newest.info, {}};
  switch (newest.kind) {
    case RecordKind::kBarrier:
      state.phase = Barrier{};
      return state;
    case RecordKind::kReleased:
      state.phase = Released{};
      return state;
    case RecordKind::kResumed:
      if (newest.owner)
        state.phase = Owner{newest.k, newest.never_barrier, true, false, newest.reason};
      else
        state.phase = Leased{newest.k, false, false, newest.k, {}};
      return state;
    default:
      break;
  }
  return Error(ErrorCode::kCorrupt,
               "Record " + std::string(to_string(newest.kind)) + " is unexpected in a source's journal");
}

bool is_closed(const SourceState& state) noexcept {
  return std::holds_alternative<Owner>(state.phase) || std::holds_alternative<Released>(state.phase);
}

bool holds_job(const SourceState& state) noexcept {
  return std::holds_alternative<Barrier>(state.phase) || std::holds_alternative<Leased>(state.phase);
}

std::string_view phase_name(const SourceState& state) noexcept {
  static constexpr std::string_view kNames[] = {"PREPARING", "READY",  "PRECOPY", "PAUSING",
                                                "BARRIER",   "LEASED", "OWNER",   "RELEASED"};
  return kNames[state.phase.index()];
}

}  // namespace ckpt::migration
