// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/handover/coordinator_judgement.h"

namespace ckpt::migration {

using namespace coordinator;

bool CoordinatorJudgement::answered_lately(Role party) const {
  const std::size_t i = index_of(party);
  return s_.connected[i] && now_ - s_.last_message[i] <= timing_.silence_ms * kNanosPerMs;
}

Role CoordinatorJudgement::holder(Incarnation k) const {
  return ((k - s_.info.base) & 1) != 0 ? Role::kTarget : Role::kSource;
}

bool CoordinatorJudgement::withheld(const Granted& g) const {
  return s_.abort_wanted && g.committed == 0 && holder(g.k) == Role::kTarget;
}

bool CoordinatorJudgement::may_lend_to(Role party) const {
  return now_ >= s_.unsure_until || s_.answered[1 - index_of(party)];
}

bool CoordinatorJudgement::knows_more(const Message& m) const {
  if (!unsure() || is_closed(s_) || std::holds_alternative<Forgotten>(s_.phase)) return false;
  const bool source = m.from == Role::kSource;
  const auto* g = std::get_if<Granted>(&s_.phase);
  const Incarnation known = g != nullptr ? g->k : s_.info.base;
  if (const auto* r = std::get_if<wire::Resumed>(&m.body))
    return r->k > known || (g == nullptr && !r->never_barrier);
  if (const auto* c = std::get_if<wire::Committed>(&m.body)) return c->k > known;
  if (const auto* r = std::get_if<wire::Ran>(&m.body)) return r->k > known;
  if (const auto* l = std::get_if<wire::LeaseRequest>(&m.body)) return l->k > known;
  if (g != nullptr) return false;
  return std::holds_alternative<wire::Verified>(m.body) || std::holds_alternative<wire::Released>(m.body) ||
         (source && std::holds_alternative<wire::Query>(m.body));
}

bool CoordinatorJudgement::is_closed_for_target() const {
  const auto* c = std::get_if<Closed>(&s_.phase);
  return c != nullptr && c->side == Side::kTarget;
}

bool CoordinatorJudgement::may_resolve_at(Side side) const {
  if (const auto* g = std::get_if<Granted>(&s_.phase))
    return side != Side::kTarget || g->verified || g->committed != 0;
  const auto* f = std::get_if<Forgotten>(&s_.phase);
  return f != nullptr && (side != Side::kTarget || f->target_k != 0);
}

std::string CoordinatorJudgement::why_not_resolved() const {
  if (std::holds_alternative<Granted>(s_.phase) || std::holds_alternative<Forgotten>(s_.phase))
    return "The target's image is not known to be complete: the migration can only be resolved at the source";
  return "There is nothing to resolve: the migration has not been granted yet (abort it), or it has already "
         "ended";
}

Result<CoordinatorState> restore_coordinator(const Record& newest) {
  CoordinatorState state{newest.info, {}, false, newest.reason};
  switch (newest.kind) {
    case RecordKind::kBegun:
      state.phase = Begun{};
      return state;
    case RecordKind::kGranted:
      state.phase = Granted{newest.k};
      return state;
    case RecordKind::kAborted:
      state.phase = Aborted{};
      return state;
    case RecordKind::kClosed:
      state.phase = Closed{static_cast<Side>(newest.side)};
      return state;
    default:
      break;
  }
  return Error(ErrorCode::kCorrupt,
               "Record " + std::string(to_string(newest.kind)) + " is unexpected in a coordinator's journal");
}

CoordinatorState forgotten_coordinator(HandoverInfo info, Nanos undecided_until) {
  return {std::move(info), Forgotten{undecided_until}};
}

bool is_closed(const CoordinatorState& state) noexcept {
  return std::holds_alternative<Aborted>(state.phase) || std::holds_alternative<Closed>(state.phase);
}

bool is_settled(const CoordinatorState& state) noexcept {
  if (const auto* a = std::get_if<Aborted>(&state.phase)) return a->source_knows && a->target_knows;
  if (const auto* c = std::get_if<Closed>(&state.phase)) return c->source_knows && c->target_knows;
  return false;
}

std::string_view phase_name(const CoordinatorState& state) noexcept {
  static constexpr std::string_view kNames[] = {"BEGUN", "GRANTED", "ABORTED", "CLOSED", "FORGOTTEN"};
  return kNames[state.phase.index()];
}

}  // namespace ckpt::migration
