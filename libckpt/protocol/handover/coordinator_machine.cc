// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/handover/coordinator_machine.h"

#include <algorithm>

#include "libckpt/protocol/handover/coordinator_judgement.h"
#include "libckpt/protocol/handover/handover_stepper.h"
#include "libckpt/protocol/handover/step_checks.h"

namespace ckpt::migration {
namespace {

using namespace coordinator;

class Stepper : private HandoverStepper<CoordinatorState> {
 public:
  Stepper(const CoordinatorState& state, Nanos now, const Timing& timing)
      : HandoverStepper(state, Role::kCoordinator, now, timing) {}

  Result<Step<CoordinatorState>> run(const CoordinatorEvent& event) {
    const bool possible = std::visit([this](const auto& e) { return on(e); }, event);
    if (!possible && std::holds_alternative<ResolveRequested>(event))
      return Error(ErrorCode::kRefused, judgement().why_not_resolved());
    return result(possible, event.index(), "the coordinator");
  }

 private:
  [[nodiscard]] CoordinatorJudgement judgement() const { return {s_, now_, timing_}; }
  void relay(Role stated_by, Role to, wire::Body body) { act(Send(stated_by, to, std::move(body))); }
  void remember(const Reason& reason) {
    if (s_.reason.text.empty()) s_.reason = reason;
  }
  [[nodiscard]] Nanos term_from_now() const {
    return now_ + (std::int64_t{timing_.lease_term_ms} + timing_.lease_drift_ms) * kNanosPerMs;
  }

  // ---- BEGUN ----
  void ask_to_prepare() {
    const Begun& b = std::get<Begun>(s_.phase);
    const wire::Prepare prepare(s_.info.ranks, s_.info.plan);
    // A prepared side gets a query instead: a side that restarted then reports that it no longer knows the
    // migration.
    send(Role::kSource, b.source_payload ? wire::Body(wire::Query{}) : wire::Body(prepare));
    send(Role::kTarget, b.target_payload ? wire::Body(wire::Query{}) : wire::Body(prepare));
  }
  void abort(ReportKind kind) {
    Record r = record(RecordKind::kAborted);
    r.reason = s_.reason;
    act(WriteRecord(r));
    send_both(wire::Aborted(s_.reason));
    act(DisarmTimer(Timer::kMigration));
    act(ArmTimer(Timer::kPoll, timing_.poll_ms));
    act(Report(kind, s_.info.base, s_.reason));
    s_.owner_k = s_.info.base;
    s_.phase = Aborted{};
  }
  // Records GRANTED(k) and offers it. The lease is granted on request (SW-6, SW-12).
  void grant(Incarnation k) {
    Granted next;
    if (const auto* g = in<Granted>()) next = *g;
    next.k = k;
    next.lease_until = 0;
    next.lent = next.withheld = false;
    act(WriteRecord(record(RecordKind::kGranted, k)));
    send(judgement().holder(k), wire::Commit(k));
    act(ArmTimer(Timer::kPoll, timing_.poll_ms));
    act(Report(ReportKind::kGranted, k));
    s_.phase = next;
  }

  // ---- GRANTED ----
  void close(Side side, ReportKind kind) {
    if (side == Side::kTarget)
      s_.owner_k = in<Forgotten>() ? in<Forgotten>()->target_k : std::get<Granted>(s_.phase).committed;
    if (side == Side::kSource && s_.resumed) s_.owner_k = s_.resumed->k;
    Record r = record(RecordKind::kClosed, s_.owner_k);
    r.side = static_cast<std::uint8_t>(side);
    r.reason = s_.reason;
    act(WriteRecord(r));
    send_both(wire::Closed(side));
    act(DisarmTimer(Timer::kMigration));
    act(ArmTimer(Timer::kPoll, timing_.poll_ms));
    act(Report(kind, s_.owner_k, s_.reason));
    s_.phase = Closed{side};
  }
  void close_for_source() {
    const bool ran =
        in<Forgotten>() ? in<Forgotten>()->target_k != 0 : std::get<Granted>(s_.phase).ran_target != 0;
    close(Side::kSource, ran ? ReportKind::kRestored : ReportKind::kClosedSource);
  }
  void want_abort(const Reason& reason) {
    remember(reason);
    s_.abort_wanted = true;
    if (in<Begun>() && !judgement().unsure())
      abort(ReportKind::kAborted);
    else
      send_both(wire::GiveUp(s_.reason));
  }
  void note_committed(Granted& g, Incarnation k) {
    if (k <= g.committed) return;
    const bool first = g.committed == 0;
    g.committed = k;
    if (first) act(Report(ReportKind::kCommitted, k));
    if (s_.abort_wanted) act(Report(ReportKind::kAbortTooLate, k, s_.reason));
    s_.abort_wanted = false;
  }
  // Grants the next incarnation if the holder is silent and its lease has expired (SW-12).
  void advance_if_due() {
    auto* g = in<Granted>();
    const Role held_by = judgement().holder(g->k);
    if (judgement().answered_lately(held_by) || now_ < g->lease_until) return;
    const Role other = held_by == Role::kTarget ? Role::kSource : Role::kTarget;
    if (!judgement().answered_lately(other)) return;
    if (other == Role::kSource && !g->source_waits)
      send(Role::kSource, wire::GiveUp(Reason(ErrorCode::kUnavailable, "The target does not answer")));
    else
      grant(g->k + 1);
  }
  void poll_granted() {
    Granted& g = std::get<Granted>(s_.phase);
    if (s_.abort_wanted && g.committed == 0) send_both(wire::GiveUp(s_.reason));
    if (!judgement().withheld(g) && g.committed < g.k && g.ran_source < g.k)
      send(judgement().holder(g.k), wire::Commit(g.k));
    send_both(wire::Query{});
    act(ArmTimer(Timer::kPoll, timing_.poll_ms));
    advance_if_due();
  }

  void note_answer(Role from) {
    s_.answered[index_of(from)] = true;
    auto* g = in<Granted>();
    if (g == nullptr || !g->withheld || judgement().holder(g->k) == from) return;
    g->withheld = false;
    send(judgement().holder(g->k), wire::Commit(g->k));
  }

  // ---- FORGOTTEN ----
  void forget() {
    const Nanos lent_until = in<Granted>() ? in<Granted>()->lease_until : 0;
    s_.phase = Forgotten{std::max(s_.unsure_until, lent_until)};
    s_.abort_wanted = false;
    act(DisarmTimer(Timer::kMigration));
    ask_what_was_decided();
  }
  void ask_what_was_decided() {
    remember(Reason(ErrorCode::kAborted, "The coordinator lost its record of this migration"));
    act(Report(ReportKind::kForgotten, s_.info.base, s_.reason));
    poll_forgotten();
  }
  // Requests an abort from both sides. A source before its barrier and a target before its commit then leave
  // the migration. Any other side reports its record.
  void poll_forgotten() {
    send_both(wire::GiveUp(s_.reason));
    act(ArmTimer(Timer::kPoll, timing_.poll_ms));
  }
  bool receive_forgotten(const Message& m) {
    auto& f = std::get<Forgotten>(s_.phase);
    if (now_ < f.undecided_until) return true;
    if (std::holds_alternative<wire::Released>(m.body)) {
      close(Side::kTarget, ReportKind::kClosedTarget);
    } else if (std::holds_alternative<wire::Relinquished>(m.body)) {
      close_for_source();
    } else if (m.from == Role::kSource) {
      receive_forgotten_source(f, m);
    } else if (const auto* c = std::get_if<wire::Committed>(&m.body)) {
      f.target_k = std::max(f.target_k, c->k);
    } else if (const auto* r = std::get_if<wire::Ran>(&m.body)) {
      f.target_k = std::max(f.target_k, r->k);
    }
    grant_again_if_due();
    return true;
  }
  void receive_forgotten_source(Forgotten& f, const Message& m) {
    if (const auto* r = std::get_if<wire::Resumed>(&m.body)) {
      if (r->owner) {
        s_.resumed = *r;
        return close_for_source();
      }
      f.source_waits = true;
      f.source_k = std::max(f.source_k, r->k);
    } else if (std::holds_alternative<wire::Query>(m.body)) {
      f.source_waits = true;
    }
  }
  // Grants again when both sides have answered and the job may continue on either side. The later incarnation
  // is the one that ran last.
  void grant_again_if_due() {
    const auto* f = in<Forgotten>();
    if (f == nullptr || !f->source_waits || f->target_k == 0) return;
    grant(std::max(f->source_k, f->target_k));
    auto& g = std::get<Granted>(s_.phase);
    g.verified = g.source_waits = true;
    s_.answered = {true, true};
  }

  // ---- ABORTED, CLOSED ----
  void send_outcome(Role to) {
    if (const auto* c = in<Closed>())
      send(to, wire::Closed(c->side));
    else
      send(to, wire::Aborted(s_.reason));
    if (to == Role::kTarget && s_.resumed) relay(Role::kSource, to, *s_.resumed);
  }
  std::pair<bool*, bool*> known() {
    if (auto* a = in<Aborted>()) return {&a->source_knows, &a->target_knows};
    auto& c = std::get<Closed>(s_.phase);
    return {&c.source_knows, &c.target_knows};
  }

  // ---- events ----
  bool on(const MigrateRequested&) {
    if (!in<Begun>()) return false;
    act(WriteRecord(record(RecordKind::kBegun, s_.info.base)));
    ask_to_prepare();
    act(ArmTimer(Timer::kPoll, timing_.poll_ms));
    act(ArmTimer(Timer::kMigration, timing_.migration_timeout_ms));
    return true;
  }
  bool on(const AbortRequested& e) {
    if (is_closed(s_) || in<Forgotten>()) return true;  // a Forgotten migration already requests an abort
    if (const auto* g = in<Granted>()) {
      if (g->committed != 0) {
        act(Report(ReportKind::kAbortTooLate, g->committed, e.reason));
        return true;
      }
      if (e.timeout && g->verified && judgement().answered_lately(Role::kTarget)) return true;
    }
    want_abort(e.reason);
    return true;
  }
  bool on(const AgentConnected& e) {
    s_.connected[index_of(e.side)] = true;
    s_.last_message[index_of(e.side)] = now_;
    const Role party = e.side == Side::kSource ? Role::kSource : Role::kTarget;
    if (in<Begun>())
      ask_to_prepare();
    else if (in<Granted>())
      send(party, wire::Query{});
    else if (in<Forgotten>())
      send(party, wire::GiveUp(s_.reason));
    else
      send_outcome(party);
    return true;
  }
  bool on(const AgentDisconnected& e) {
    s_.connected[index_of(e.side)] = false;
    return true;
  }
  bool on(const ResolveRequested& e) {
    const bool may_lack_grant = in<Begun>() && judgement().unsure() && e.side == Side::kSource;
    if (!may_lack_grant && !judgement().may_resolve_at(e.side)) return false;
    remember(Reason(ErrorCode::kAborted, e.side == Side::kTarget
                                             ? "The migration was resolved at the target by an operator"
                                             : "The migration was resolved at the source by an operator"));
    if (may_lack_grant)
      abort(ReportKind::kAborted);
    else if (e.side == Side::kTarget)
      close(Side::kTarget, ReportKind::kClosedTarget);
    else
      close_for_source();
    return true;
  }
  bool on(const TimerFired& e) {
    if (e.timer == Timer::kMigration) {
      if (is_closed(s_) || in<Forgotten>()) return true;
      const Reason late(ErrorCode::kTimedOut, "The migration did not finish within " +
                                                  std::to_string(timing_.migration_timeout_ms) + " ms");
      on(AbortRequested(true, late));
      if (in<Granted>()) act(ArmTimer(Timer::kMigration, timing_.silence_ms));
      return true;
    }
    if (e.timer != Timer::kPoll) return false;
    if (in<Begun>()) {
      if (s_.abort_wanted && !judgement().unsure()) {
        abort(ReportKind::kAborted);
        return true;
      }
      if (s_.abort_wanted)
        send_both(wire::GiveUp(s_.reason));
      else
        ask_to_prepare();
      act(ArmTimer(Timer::kPoll, timing_.poll_ms));
    } else if (in<Granted>()) {
      poll_granted();
    } else if (in<Forgotten>()) {
      poll_forgotten();
    } else if (!is_settled(s_)) {
      const auto [source_knows, target_knows] = known();
      if (!*source_knows) send_outcome(Role::kSource);
      if (!*target_knows) send_outcome(Role::kTarget);
      act(ArmTimer(Timer::kPoll, timing_.poll_ms));
    }
    return true;
  }
  bool on(const RecordFailed& e) {
    remember(e.reason);
    if (in<Begun>()) s_.abort_wanted = true;
    act(ArmTimer(Timer::kPoll, timing_.poll_ms));
    return true;
  }
  bool on(const Restarted&) {
    if (in<Forgotten>()) {
      ask_what_was_decided();
      return true;
    }
    if (!is_closed(s_)) s_.unsure_until = term_from_now();
    if (in<Begun>()) {
      ask_to_prepare();
      act(ArmTimer(Timer::kMigration, timing_.migration_timeout_ms));
    } else if (auto* g = in<Granted>()) {
      // SW-9: every lease that the coordinator may have granted lasts one full term from now.
      g->lease_until = s_.unsure_until;
      send(judgement().holder(g->k), wire::Commit(g->k));
      send_both(wire::Query{});
      act(ArmTimer(Timer::kMigration, timing_.migration_timeout_ms));
    } else {
      send_outcome(Role::kSource);
      send_outcome(Role::kTarget);
    }
    act(ArmTimer(Timer::kPoll, timing_.poll_ms));
    return true;
  }

  bool on(const Message& m) {
    if (m.from != Role::kSource && m.from != Role::kTarget) return false;
    s_.last_message[index_of(m.from)] = now_;
    s_.connected[index_of(m.from)] = true;
    if (judgement().knows_more(m)) forget();
    if (in<Forgotten>()) return receive_forgotten(m);
    note_answer(m.from);
    if (in<Begun>()) return std::visit([&](const auto& body) { return receive_begun(m.from, body); }, m.body);
    if (in<Granted>())
      return std::visit(
          [&](const auto& body) { return receive_granted(m.from, std::get<Granted>(s_.phase), body); },
          m.body);
    return receive_closed(m);
  }

  bool receive_begun(Role from, const wire::Prepared& body) {
    auto& b = std::get<Begun>(s_.phase);
    const bool both_before = b.source_payload && b.target_payload;
    auto& mine = from == Role::kSource ? b.source_payload : b.target_payload;
    mine = body.payload;
    if (!b.source_payload || !b.target_payload) return true;
    // A side repeats Prepared if it has not received Start. A side that has received Start ignores the
    // repetition.
    if (!both_before || from == Role::kSource) send(Role::kSource, wire::Start(*b.target_payload));
    if (!both_before || from == Role::kTarget) send(Role::kTarget, wire::Start(*b.source_payload));
    if (!both_before) act(Report(ReportKind::kPrepared));
    return true;
  }
  bool receive_begun(Role /*from*/, const wire::Refused& body) {
    remember(body.reason);
    abort(ReportKind::kRefused);
    return true;
  }
  bool receive_begun(Role /*from*/, const wire::Failed& body) { return want_abort(body.reason), true; }
  bool receive_begun(Role from, const wire::Relinquished& body) {
    if (from != Role::kTarget) return false;
    remember(body.reason);
    abort(ReportKind::kAborted);
    return true;
  }
  bool receive_begun(Role from, const wire::Resumed& body) {
    if (from != Role::kSource || !body.owner) return false;
    s_.resumed = body;
    const Reason unsaid(ErrorCode::kAborted, "The source left the migration");
    remember(body.reason.text.empty() ? unsaid : body.reason);
    abort(ReportKind::kAborted);
    return true;
  }
  bool receive_begun(Role from, const wire::Precopied&) {
    const auto& b = std::get<Begun>(s_.phase);
    // After a restart, the coordinator may receive Precopied before the target has reported again that it is
    // prepared.
    if (from != Role::kSource) return false;
    if (b.target_payload && !s_.abort_wanted) grant(s_.info.base + 1);
    return true;
  }
  // Handles a query of a source that has recorded BARRIER and waits, although nothing was granted. This
  // happens after an operator has restored a journal. The abort lets the source continue.
  bool receive_begun(Role from, const wire::Query&) {
    if (from == Role::kSource) want_abort(Reason(ErrorCode::kInternal, "The source paused before the grant"));
    return true;
  }
  template <class Body>
  bool receive_begun(Role /*from*/, const Body& /*body*/) {
    return false;
  }

  bool receive_granted(Role from, Granted& g, const wire::LeaseRequest& body) {
    if (body.k != g.k || from != judgement().holder(g.k)) {
      restate(from, g);
      return true;
    }
    if (judgement().withheld(g)) {
      send(from, wire::GiveUp(s_.reason));
      return true;
    }
    g.withheld = !judgement().may_lend_to(from);
    if (g.withheld) {
      send(from == Role::kTarget ? Role::kSource : Role::kTarget, wire::Query{});
      return true;
    }
    g.lease_until = term_from_now();
    send(from, wire::Lease(body.k, body.sent_at_ns, timing_.lease_term_ms));
    if (from == Role::kTarget && !g.lent && body.k == s_.info.base + 1)
      send(Role::kSource, wire::Granted(body.k));
    g.lent = true;
    return true;
  }
  bool receive_granted(Role from, Granted& g, const wire::Precopied&) {
    if (from != Role::kSource) return false;
    if (g.lent && g.k == s_.info.base + 1 && now_ < g.lease_until) send(from, wire::Granted(g.k));
    return true;
  }
  bool receive_granted(Role from, Granted& g, const wire::Verified&) {
    if (from != Role::kTarget) return false;
    if (!g.verified) act(Report(ReportKind::kVerified));
    g.verified = true;
    return true;
  }
  bool receive_granted(Role from, Granted& g, const wire::Committed& body) {
    if (from != Role::kTarget) return false;
    note_committed(g, body.k);
    return true;
  }
  bool receive_granted(Role from, Granted& g, const wire::Ran& body) {
    Incarnation& ran = from == Role::kTarget ? g.ran_target : g.ran_source;
    if (from == Role::kTarget) note_committed(g, body.k);
    if (body.k > ran)
      act(Report(from == Role::kTarget ? ReportKind::kRunsAtTarget : ReportKind::kRunsAtSource, body.k));
    ran = std::max(ran, body.k);
    relay(from, from == Role::kTarget ? Role::kSource : Role::kTarget, body);
    return true;
  }
  bool receive_granted(Role from, Granted& /*g*/, const wire::Released&) {
    if (from != Role::kSource) return false;
    close(Side::kTarget, ReportKind::kClosedTarget);
    return true;
  }
  bool receive_granted(Role from, Granted& /*g*/, const wire::Relinquished& body) {
    if (from != Role::kTarget) return false;
    remember(body.reason);
    close_for_source();
    return true;
  }
  // Handles RESUMED. A source that owns the job has no BARRIER record and never writes one, or has received
  // RELINQUISHED itself.
  bool receive_granted(Role from, Granted& g, const wire::Resumed& body) {
    if (from != Role::kSource) return false;
    g.source_waits = g.source_waits || !body.owner;
    if (!body.owner) return true;
    s_.resumed = body;
    remember(body.reason);
    close_for_source();
    return true;
  }
  bool receive_granted(Role from, Granted& g, const wire::Failed& body) {
    if (from != Role::kSource) return false;
    if (g.committed == 0) want_abort(body.reason);
    return true;
  }
  bool receive_granted(Role from, Granted& g, const wire::Query&) {
    if (from == Role::kSource) g.source_waits = true;
    restate(from, g);
    return true;
  }
  // Ignores a late message: its question was settled before the grant.
  bool receive_granted(Role /*from*/, Granted& /*g*/, const wire::Prepared&) { return true; }
  bool receive_granted(Role /*from*/, Granted& /*g*/, const wire::Refused& body) {
    return want_abort(body.reason), true;
  }
  template <class Body>
  bool receive_granted(Role /*from*/, Granted& /*g*/, const Body& /*body*/) {
    return false;
  }
  void restate(Role to, const Granted& g) {
    if (judgement().holder(g.k) == to && !judgement().withheld(g)) send(to, wire::Commit(g.k));
    // RUNS is relayed only while its sender is connected, because RUNS makes the other side free its image.
    if (to == Role::kSource && g.ran_target != 0 && judgement().answered_lately(Role::kTarget))
      relay(Role::kTarget, to, wire::Ran(g.ran_target));
    if (to == Role::kTarget && g.ran_source != 0 && judgement().answered_lately(Role::kSource))
      relay(Role::kSource, to, wire::Ran(g.ran_source));
  }

  bool receive_closed(const Message& m) {
    const auto [source_knows, target_knows] = known();
    if (const auto* r = std::get_if<wire::Resumed>(&m.body); r && m.from == Role::kSource) {
      if (!r->owner) return send_outcome(m.from), true;
      *source_knows = true;
      const bool news = !s_.resumed;
      s_.resumed = *r;
      if (!judgement().is_closed_for_target()) s_.owner_k = r->k;
      if (news) relay(Role::kSource, Role::kTarget, *r);
    } else if (std::holds_alternative<wire::Released>(m.body)) {
      *source_knows = true;
    } else if (const auto* c = std::get_if<wire::Committed>(&m.body);
               c && judgement().is_closed_for_target()) {
      s_.owner_k = std::max(s_.owner_k, c->k);
      *target_knows = true;
    } else if (const auto* runs = std::get_if<wire::Ran>(&m.body);
               runs && m.from == Role::kTarget && judgement().is_closed_for_target()) {
      s_.owner_k = std::max(s_.owner_k, runs->k);
    } else if (std::holds_alternative<wire::Relinquished>(m.body)) {
      *target_knows = true;
    } else {
      send_outcome(m.from);
    }
    return true;
  }
};

}  // namespace

Result<Step<CoordinatorState>> step(const CoordinatorState& state, const CoordinatorEvent& event, Nanos now,
                                    const Timing& timing) {
  auto made = Stepper(state, now, timing).run(event);
  if (made) check_step(state, *made, now);
  return made;
}

}  // namespace ckpt::migration
