// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/gang/gang_coordinator.h"

#include <algorithm>
#include <string>
#include <vector>

#include "libckpt/protocol/gang/gang_judgement.h"
#include "libckpt/protocol/gang/gang_stepper.h"
#include "libckpt/protocol/gang/step_checks.h"

namespace ckpt::gang {
namespace {

class CoordinatorStepper : private Stepper<CoordinatorState> {
 public:
  CoordinatorStepper(const CoordinatorState& state, Nanos now, const Timing& timing)
      : Stepper(state, Party(), now, timing) {}

  Result<Step<CoordinatorState, Action>> run(const CoordinatorEvent& event) {
    const bool possible = std::visit([this](const auto& e) { return on(e); }, event);
    if (possible) {
      while (decide()) {
      }
      s_.settled |= everyone_knows();
    }
    return result(possible, event.index(), phase_name(s_));
  }

 private:
  Judgement judgement() const { return Judgement(s_); }
  Incarnation k() const { return s_.info.base + 1; }
  bool is_silent(const Facts& facts) const {
    return now_ - facts.last_message > static_cast<Nanos>(timing_.silence_ms) * kNanosPerMs;
  }
  Nanos longest_lease() const {
    return now_ + static_cast<Nanos>(timing_.lease_term_ms + timing_.lease_drift_ms) * kNanosPerMs;
  }

  // ---- decisions: each returns true if the phase has changed ----
  bool decide() {
    if (in<coordinator::Begun>()) return decide_begun();
    if (in<coordinator::Asking>()) return decide_asking();
    if (in<coordinator::Granted>()) return follow_lost_record() || decide_granted();
    if (auto* restored = in<coordinator::Restored>()) {
      if (restored->ordered || !judgement().is_fenced()) return false;
      restored->ordered = true;
      act(RestoreGang{});
      return false;
    }
    if (judgement().needs_image() && !s_.settled)
      return enter(RecordKind::kRestored, coordinator::Restored{});
    if (in<coordinator::Kept>() && judgement().may_close_for_targets()) return close(Side::kTarget, k());
    const bool back = judgement().all(Role::kSource, [](const Facts& f) { return f.resumed || f.never; });
    if (in<coordinator::Returned>() && back) return close(Side::kSource, s_.info.base + 2);
    return false;
  }
  bool decide_begun() {
    const auto stopped = [](const Facts& f) {
      return f.never || f.relinquished || f.old || f.dead || f.lost;
    };
    const Judgement now = judgement();
    for (const Role role : {Role::kSource, Role::kTarget, Role::kBystander})
      if (!s_.abort && now.any(role, stopped))
        s_.abort = Reason(ErrorCode::kRefused, "A rank cannot take part");
    if (s_.abort) return enter(RecordKind::kAborted, coordinator::Aborted{});
    start_prepared();
    const bool copied = now.all(Role::kSource, [](const Facts& f) { return f.precopied; });
    const bool joined = now.all(Role::kBystander, [](const Facts& f) { return f.payload.has_value(); });
    return copied && joined && grant();
  }
  // Grants the new epoch. Prepared ranks had nothing to report while others copied, so their silence counts
  // from now.
  bool grant() {
    for (auto& [party, facts] : s_.facts) facts.last_message = now_;
    return enter(RecordKind::kGranted, coordinator::Granted{}, k());
  }
  // Continues once the ranks have answered. A lost decision that the ranks have applied is then made again.
  bool decide_asking() {
    // Targets need not answer, because sources and bystanders know as much about a decision. The coordinator
    // waits for absent sources and bystanders.
    const bool all = std::all_of(s_.facts.begin(), s_.facts.end(), [](const auto& entry) {
      return entry.first.role == Role::kTarget || entry.second.answered || entry.second.lost;
    });
    if (!all) return false;
    if (!s_.abort) s_.abort = Reason(ErrorCode::kAborted, "The coordinator lost its record of the move");
    return enter(RecordKind::kGranted, coordinator::Granted{}, k());
  }
  bool follow_lost_record() {
    const Judgement now = judgement();
    const auto any = [&now](auto test) {
      return now.any(Role::kSource, test) || now.any(Role::kTarget, test) || now.any(Role::kBystander, test);
    };
    if (any([](const Facts& f) { return f.fenced; }))
      return enter(RecordKind::kRestored, coordinator::Restored{});
    if (any([](const Facts& f) { return f.returned; }))
      return enter(RecordKind::kReturned, coordinator::Returned{}, s_.info.base + 2);
    return any([](const Facts& f) { return f.lifted; }) && enter(RecordKind::kKept, coordinator::Kept{});
  }
  bool decide_granted() {
    give_up_where_one_is_missing();
    give_up_if_late();
    const Judgement now = judgement();
    if (now.is_vetoed()) return close(Side::kSource, s_.info.base);
    if (now.may_close_for_targets()) return close(Side::kTarget, k());
    if (now.needs_image()) return enter(RecordKind::kRestored, coordinator::Restored{});
    if (may_return()) return enter(RecordKind::kReturned, coordinator::Returned{}, s_.info.base + 2);
    const bool keeps =
        now.is_held_still() && !now.is_damaged() && (now.excludes_return() || now.lacks_a_source());
    return keeps && enter(RecordKind::kKept, coordinator::Kept{});
  }
  // Aborts if a bystander is missing. A bystander that continues in the old epoch was never held. If
  // communicators are created during the pause, all ranks would wait for a silent bystander until their
  // deadline.
  void give_up_where_one_is_missing() {
    if (s_.abort || judgement().is_committed()) return;
    const auto is_missing = [this](const auto& entry) {
      const auto& [party, f] = entry;
      const bool is_waited_for = !s_.info.overlaps && !f.held && !f.still && is_silent(f);
      return party.role == Role::kBystander && (f.old || is_waited_for);
    };
    const auto missing = std::find_if(s_.facts.begin(), s_.facts.end(), is_missing);
    if (missing == s_.facts.end()) return;
    s_.abort = Reason(ErrorCode::kAborted, "Rank " + std::to_string(missing->first.rank) +
                                               ", which stays where it is, no longer takes part");
    nag_granted();
  }
  // Aborts a move whose timeout has passed (SW-7). The coordinator does not abort if it has received
  // everything that decides the move and the parties are reachable.
  void give_up_if_late() {
    if (!s_.late || s_.abort || is_about_to_hand_over()) return;
    s_.abort =
        Reason(ErrorCode::kTimedOut, "The move was not completed in time: " + judgement().waited_for());
    nag_granted();
  }
  bool is_about_to_hand_over() const {
    const auto is_verified = [this](const Facts& f) {
      return f.verified && !f.relinquished && !f.dead && !f.lost && !is_silent(f);
    };
    const auto is_held = [this](const Facts& f) {
      return (f.held || f.lifted || f.gone) && !f.still && !f.old && !f.dead && !f.lost && !is_silent(f);
    };
    return judgement().all(Role::kTarget, is_verified) && judgement().all(Role::kBystander, is_held);
  }
  // Returns whether to send WITHDRAW, because the targets may be unable to continue. Withdrawing is harmless:
  // it refuses GO until the refusal is lifted.
  bool withdraws() const {
    const Judgement now = judgement();
    const bool waited_for = now.any(Role::kSource, [](const Facts& f) { return f.waits; });
    const bool silent = now.any(Role::kTarget, [this](const Facts& f) { return is_silent(f); });
    return in<coordinator::Granted>() && (now.is_damaged() || now.is_held_still() || (waited_for && silent));
  }
  bool may_return() const {
    const auto stands = [this](const Facts& f) {
      return (f.waits || f.still || f.resumed || f.never) && !is_silent(f) && !f.lost && !f.dead;
    };
    return withdraws() && leases_are_over() && judgement().is_withdrawn() &&
           judgement().all(Role::kSource, stands);
  }
  // Returns whether no target has a lease any more. A target that gave up accepts no new lease, and states
  // that only once its instance cannot run. The wait for earlier leases does not rely on statements.
  bool leases_are_over() const {
    const auto has_none = [this](const Facts& f) { return f.relinquished || now_ >= f.lease_until; };
    return now_ >= s_.earlier_leases_until && judgement().all(Role::kTarget, has_none);
  }
  // Returns whether every target has a lease. ADR 2: no rank is held before every target has a lease.
  bool all_have_leases() const {
    return judgement().all(Role::kTarget, [this](const Facts& f) { return f.lent && now_ < f.lease_until; });
  }
  bool may_lend() const {
    if (judgement().is_damaged()) return false;
    if (in<coordinator::Kept>()) return true;
    return in<coordinator::Granted>() && !withdraws() && (!s_.abort || judgement().is_committed());
  }

  template <class Phase>
  bool enter(RecordKind kind, Phase phase, Incarnation incarnation = 0) {
    s_.phase = phase;
    Record r = record(kind, incarnation);
    if (s_.abort) r.reason = *s_.abort;
    act(WriteRecord(r));
    announce();
    return true;
  }
  bool close(Side side, Incarnation incarnation) {
    s_.phase = coordinator::Closed{side, incarnation};
    Record r = record(RecordKind::kClosed, incarnation);
    r.side = side;
    if (s_.abort) r.reason = *s_.abort;
    act(WriteRecord(r));
    announce();
    return true;
  }

  // ---- messages to the ranks, sent at each change of the phase and repeated until the ranks know it ----
  void start_prepared() {
    for (const std::uint32_t rank : s_.info.moved) {
      Facts& source = s_.facts.at({Role::kSource, rank});
      Facts& target = s_.facts.at({Role::kTarget, rank});
      if (source.started || !source.payload || !target.payload) continue;
      source.started = target.started = true;
      send_start(rank);
    }
  }
  void send_start(std::uint32_t rank) {
    send({Role::kSource, rank}, Start(*s_.facts.at({Role::kTarget, rank}).payload));
    send({Role::kTarget, rank}, Start(*s_.facts.at({Role::kSource, rank}).payload));
  }
  void announce() {
    if (in<coordinator::Begun>()) return announce_begun();
    if (in<coordinator::Asking>()) return ask_all();
    if (in<coordinator::Granted>()) return announce_granted();
    for (const auto& [party, facts] : s_.facts) {
      if (facts.lost) continue;
      if (knows(party, facts)) {
        // The owner may have exited since it reported ownership, and its report of the exit may have been
        // lost.
        if (facts.owns && in<coordinator::Closed>()) send(party, Query{});
        continue;
      }
      if (in<coordinator::Aborted>()) {
        send(party, Aborted(s_.abort.value_or(Reason(ErrorCode::kAborted, "The migration was aborted"))));
      } else if (const auto* closed = in<coordinator::Closed>()) {
        send(party, Closed(closed->side, closed->k));
      } else if (in<coordinator::Returned>()) {
        send(party, Returned(s_.info.base + 2));
      } else if (in<coordinator::Kept>()) {
        send(party, Kept{});
        send(party, Query{});
      } else {
        send(party, Restore{});
      }
    }
  }
  void ask_all() {
    for (const auto& [party, facts] : s_.facts)
      if (!facts.answered && !facts.lost) send(party, Query{});
  }
  void announce_begun() {
    for (const auto& [party, facts] : s_.facts) {
      if (!facts.payload) send(party, Prepare{});
      if (party.role == Role::kSource && facts.started && !facts.precopied) send_start(party.rank);
    }
  }
  void announce_granted() {
    if (!s_.abort) act(GatherRanks{});
    nag_granted();
  }
  void nag_granted() {
    const bool back = withdraws();
    // After an abort, GRANTED is sent only if a target has committed. A rank that never received GRANTED
    // leaves the move.
    const bool goes_on = !s_.abort || judgement().is_committed();
    const bool holds = all_have_leases();
    for (const auto& [party, facts] : s_.facts) {
      if (facts.lost) continue;
      const bool gets_grant = holds || party.role == Role::kTarget;
      if (goes_on) send(party, gets_grant ? Body(Granted(k())) : Body(Query{}));
      if (back && party.role == judgement().withdrawer()) send(party, Withdraw{});
      if (s_.abort) send(party, GiveUp(*s_.abort));
    }
  }
  bool everyone_knows() {
    if (const auto* restored = in<coordinator::Restored>()) return restored->ordered;
    return is_closed(s_) && std::all_of(s_.facts.begin(), s_.facts.end(), [this](const auto& entry) {
             return entry.second.lost || knows(entry.first, entry.second);
           });
  }
  bool knows(const Party& party, const Facts& f) {
    if (in<coordinator::Restored>())
      return party.role == Role::kTarget ? f.relinquished
                                         : f.fenced || (party.role == Role::kSource && f.released);
    if (in<coordinator::Kept>()) return false;
    const auto* closed = in<coordinator::Closed>();
    const bool to_new = closed != nullptr && closed->side == Side::kTarget;
    switch (party.role) {
      case Role::kSource:
        return to_new ? f.released : f.resumed || f.never;
      case Role::kTarget:
        return to_new ? f.owns : f.relinquished;
      default:
        return to_new ? f.gone : f.old;
    }
  }

  // ---- events ----
  bool on(const MigrateRequested&) {
    if (!in<coordinator::Begun>()) return false;
    write(RecordKind::kBegun);
    announce();
    poll_again();
    arm(Timer::kMigration, timing_.migration_timeout_ms);
    return true;
  }
  bool on(const AbortRequested& e) {
    if (!s_.abort) s_.abort = e.reason;
    if (in<coordinator::Granted>()) nag_granted();
    return true;
  }
  bool on(const PartyLost& e) {
    const auto at = s_.facts.find(e.party);
    if (at == s_.facts.end()) return false;
    at->second.lost = true;
    return true;
  }
  bool on(const TimerFired& e) {
    if (e.timer == Timer::kMigration) {
      s_.late = true;
      if (in<coordinator::Granted>()) return true;  // the decision is made at the end of this function
      return on(AbortRequested(
          Reason(ErrorCode::kTimedOut, "The move was not completed in time: " + judgement().waited_for())));
    }
    if (e.timer != Timer::kPoll) return false;
    if (s_.settled) return true;
    if (in<coordinator::Granted>())
      nag_granted();
    else
      announce();
    poll_again();
    return true;
  }
  bool on(const RecordFailed&) {
    poll_again();  // the coordinator then decides again which action is due
    return true;
  }
  bool on(const Restarted&) {
    s_.earlier_leases_until = longest_lease();
    for (auto& [party, facts] : s_.facts) {
      facts.last_message = now_;
      if (!in<coordinator::Asking>()) send(party, Query{});
    }
    announce();
    poll_again();
    arm(Timer::kMigration, timing_.migration_timeout_ms);
    return true;
  }
  bool on(const PartyAnswered& e) {
    const auto at = s_.facts.find(e.party);
    if (at == s_.facts.end()) return false;
    at->second.answered = true;
    return true;
  }
  bool on(const Message& m) {
    const auto at = s_.facts.find(m.from);
    if (at == s_.facts.end()) return false;
    at->second.last_message = now_;
    std::visit([&](const auto& body) { note(at->first, at->second, body); }, m.body);
    return true;
  }

  // ---- statements ----
  void note(const Party&, Facts& f, const Prepared& body) { f.payload = body.payload; }
  void note(const Party&, Facts&, const Failed& body) {
    if (!s_.abort) s_.abort = body.reason;
  }
  void note(const Party&, Facts& f, const Precopied&) { f.precopied = true; }
  void note(const Party&, Facts& f, const Waiting& body) {
    f.waits = true;
    f.dead = f.dead || body.dead;
  }
  void note(const Party&, Facts& f, const Never& body) {
    f.never = true;
    if (!s_.abort) s_.abort = body.reason;
  }
  void note(const Party&, Facts& f, const Resumed& body) {
    f.resumed = true;
    f.returned = f.returned || body.k == s_.info.base + 2;
  }
  void note(const Party&, Facts& f, const Released&) { f.released = true; }
  void note(const Party&, Facts& f, const Verified&) { f.verified = true; }
  void note(const Party&, Facts& f, const Ready&) { f.verified = true; }
  void note(const Party&, Facts& f, const Committed&) { f.verified = f.committed = true; }
  void note(const Party&, Facts& f, const Ran&) { f.ran = true; }
  void note(const Party&, Facts& f, const Owns&) { f.owns = true; }
  void note(const Party&, Facts& f, const Relinquished& body) {
    f.relinquished = true;
    f.veto = body.veto;
    if (!s_.abort) s_.abort = body.reason;
  }
  void note(const Party&, Facts& f, const Held&) { f.held = true; }
  void note(const Party&, Facts& f, const HeldStill&) { f.still = true; }
  void note(const Party&, Facts& f, const Lifted&) { f.lifted = true; }
  void note(const Party&, Facts& f, const Gone&) { f.gone = true; }
  void note(const Party&, Facts& f, const Old& body) {
    f.old = true;
    f.returned = f.returned || body.k == s_.info.base + 2;
  }
  void note(const Party&, Facts& f, const Dead&) { f.dead = true; }
  void note(const Party&, Facts& f, const Fenced&) { f.fenced = true; }
  void note(const Party& from, Facts& f, const LeaseRequest& body) {
    if (from.role != Role::kTarget || body.k != k() || !may_lend()) return;
    const bool held_before = all_have_leases();
    f.lease_until = std::max(f.lease_until, longest_lease());
    f.lent = true;
    send(from, Lease(body.k, body.sent_at_ns, timing_.lease_term_ms));
    if (in<coordinator::Granted>() && !held_before && all_have_leases()) nag_granted();
  }
  void note(const Party& from, Facts& f, const Query&) {
    const bool is_undecided =
        in<coordinator::Begun>() || in<coordinator::Asking>() || in<coordinator::Granted>();
    if (is_undecided || knows(from, f)) return;
    announce();
  }
  template <class Other>
  void note(const Party& /*from*/, Facts& /*facts*/, const Other& /*body*/) {}
};

CoordinatorState fresh(GangInfo info) {
  CoordinatorState state;
  for (const Party& party : info.ranks()) state.facts[party] = Facts{};
  state.info = std::move(info);
  return state;
}

}  // namespace

CoordinatorState begin(GangInfo info, Nanos now) {
  CoordinatorState state = fresh(std::move(info));
  for (auto& [party, facts] : state.facts) facts.last_message = now;
  return state;
}

CoordinatorState recover_coordinator(GangInfo info, Nanos now) {
  CoordinatorState state = begin(std::move(info), now);
  state.phase = coordinator::Asking{};
  return state;
}

Result<Step<CoordinatorState, Action>> step(const CoordinatorState& state, const CoordinatorEvent& event,
                                            Nanos now, const Timing& timing) {
  auto made = CoordinatorStepper(state, now, timing).run(event);
  if (made) check_step(state, *made, now, Judgement(made->state).is_fenced());
  return made;
}

Result<CoordinatorState> restore_coordinator(const Record& newest) {
  CoordinatorState state = fresh(newest.info);
  // A reason in the record of any phase is the reason of an abort. After the restart the move must still be
  // aborted.
  if (!newest.reason.text.empty()) state.abort = newest.reason;
  switch (newest.kind) {
    case RecordKind::kBegun:
      return state;
    case RecordKind::kGranted:
      state.phase = coordinator::Granted{};
      return state;
    case RecordKind::kKept:
      state.phase = coordinator::Kept{};
      return state;
    case RecordKind::kReturned:
      state.phase = coordinator::Returned{};
      return state;
    case RecordKind::kClosed:
      state.phase = coordinator::Closed{newest.side, newest.k};
      return state;
    case RecordKind::kAborted:
      state.phase = coordinator::Aborted{};
      return state;
    case RecordKind::kRestored:
      state.phase = coordinator::Restored{};
      return state;
    default:
      return Error(ErrorCode::kCorrupt,
                   "Record " + name_of(newest) + " is unexpected in the coordinator's journal");
  }
}

bool is_closed(const CoordinatorState& state) noexcept {
  return std::holds_alternative<coordinator::Closed>(state.phase) ||
         std::holds_alternative<coordinator::Aborted>(state.phase) ||
         std::holds_alternative<coordinator::Restored>(state.phase);
}

std::string_view phase_name(const CoordinatorState& state) noexcept {
  static constexpr std::string_view kNames[] = {"BEGUN",  "GRANTED", "KEPT",     "RETURNED",
                                                "CLOSED", "ABORTED", "RESTORED", "ASKING"};
  return kNames[state.phase.index()];
}

}  // namespace ckpt::gang
