// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/handover/agent_handovers.h"

#include <algorithm>
#include <optional>

#include "libckpt/protocol/wire/ids.h"

namespace ckpt::migration {
namespace {

constexpr std::uint32_t kRenewalsInATerm = 3;

constexpr Role role_of(const SourceState& /*state*/) {
  return Role::kSource;
}
constexpr Role role_of(const TargetState& /*state*/) {
  return Role::kTarget;
}

Error not_here(HandoverKey key) {
  return {ErrorCode::kNotFound, "No " + std::string(to_string(key.role)) + " of migration " +
                                    wire::migration_text(key.migration) + " on this node"};
}

}  // namespace

template <class State, class Event>
Result<void> AgentHandovers::apply(Held<State>& held, const Event& event, Nanos now, Batches& out) {
  CKPT_TRY(next, step(held.state, event, now, timing_));
  held.before = std::exchange(held.state, std::move(next.state));
  // Late events of a closed migration (after a canceled pause) may still request RunInstance.
  if (taken_by_later(held.state.info.job, held.state.info.migration))
    std::erase_if(next.actions, [](const Action& a) { return std::holds_alternative<RunInstance>(a); });
  if (!next.actions.empty())
    out.push_back(
        {{held.state.info.migration, role_of(held.state)}, held.state.info, std::move(next.actions)});
  return ok();
}

MigrationId AgentHandovers::newest_of(JobId job) const {
  MigrationId newest = 0;
  for (const auto& [id, held] : sources_)
    if (held.state.info.job == job) newest = std::max(newest, id);
  for (const auto& [id, held] : targets_)
    if (held.state.info.job == job) newest = std::max(newest, id);
  return newest;
}

bool AgentHandovers::taken_by_later(JobId job, MigrationId migration) const {
  for (auto it = sources_.upper_bound(migration); it != sources_.end(); ++it) {
    const SourceState& later = it->second.state;
    if (later.info.job == job && (holds_job(later) || std::holds_alternative<source::Pausing>(later.phase) ||
                                  std::holds_alternative<source::Released>(later.phase)))
      return true;
  }
  return false;
}

void AgentHandovers::set_lease_term(std::uint32_t term_ms) {
  timing_.lease_term_ms = term_ms;
  timing_.lease_renew_ms = term_ms / kRenewalsInATerm;
}

Result<Batches> AgentHandovers::restore(std::span<const Record> records, Nanos now) {
  // Later records of a machine replace earlier records. The description of a migration is in the record that
  // has the plan.
  for (const Record& record : records) {
    const auto put = [&](auto& machines, auto state) {
      auto [it, fresh] = machines.try_emplace(record.info.migration);
      it->second.state = it->second.before = std::move(state);
      it->second.fresh = false;
    };
    if (record.party == Role::kSource) {
      CKPT_TRY(state, restore_source(record));
      put(sources_, std::move(state));
    } else if (record.party == Role::kTarget) {
      CKPT_TRY(state, restore_target(record));
      put(targets_, std::move(state));
    } else {
      return Error(ErrorCode::kCorrupt, "An agent's journal has a record of the coordinator");
    }
  }
  // Only a job's newest migration decides what runs now. The effects of earlier migrations are complete.
  Batches out;
  const auto wake = [&](auto& machines, auto restarted) -> Result<void> {
    for (auto& [id, held] : machines) {
      if (is_closed(held.state) && newest_of(held.state.info.job) != id) continue;
      CKPT_TRYV(apply(held, restarted, now, out));
    }
    return ok();
  };
  CKPT_TRYV(wake(sources_, SourceEvent(Restarted{})));
  CKPT_TRYV(wake(targets_, TargetEvent(Restarted{})));
  return out;
}

Result<Batches> AgentHandovers::on_message(const wire::CommitMessage& message, Nanos now) {
  const auto deliver = [&](auto& machines, auto event) -> Result<std::optional<Batches>> {
    const auto it = machines.find(message.migration);
    if (it == machines.end()) return std::optional<Batches>();
    if (it->second.state.info.job != message.job || it->second.state.info.base != message.base)
      return Error(ErrorCode::kProtocol, "Migration " + wire::migration_text(message.migration) +
                                             " is not of job " + wire::job_text(message.job));
    Batches out;
    it->second.fresh = false;
    CKPT_TRYV(apply(it->second, event, now, out));
    return std::optional(std::move(out));
  };
  if (message.to.role != Role::kSource && message.to.role != Role::kTarget)
    return Error(ErrorCode::kProtocol, "A message for the coordinator reached an agent");
  const Message heard(message.from.role, message.body);
  CKPT_TRY(delivered, message.to.role == Role::kSource ? deliver(sources_, SourceEvent(heard))
                                                       : deliver(targets_, TargetEvent(heard)));
  if (delivered) return std::move(*delivered);
  if (const auto* prepare = std::get_if<wire::Prepare>(&message.body))
    return on_prepare(message, *prepare, now);
  return on_unknown(message);
}

Result<bool> AgentHandovers::end_earlier(JobId job, MigrationId migration, Nanos now, Batches& out) {
  bool clear = true;
  const auto supersede = [&](auto& machines, auto event) -> Result<void> {
    for (auto& [id, held] : machines) {
      if (held.state.info.job != job || id >= migration || is_closed(held.state)) continue;
      held.fresh = false;
      CKPT_TRYV(apply(held, event, now, out));
      clear = clear && is_closed(held.state);
    }
    return ok();
  };
  CKPT_TRYV(supersede(sources_, SourceEvent(Superseded{})));
  CKPT_TRYV(supersede(targets_, TargetEvent(Superseded{})));
  return clear;
}

Result<Batches> AgentHandovers::on_prepare(const wire::CommitMessage& message, const wire::Prepare& prepare,
                                           Nanos now) {
  if (message.from.role != Role::kCoordinator)
    return Error(ErrorCode::kProtocol, "The message Prepare did not come from the coordinator");
  // A later migration of this job is known, so this migration is over in any case (SW-3).
  if (newest_of(message.job) > message.migration) return on_unknown(message);
  Batches out;
  CKPT_TRY(clear, end_earlier(message.job, message.migration, now, out));
  if (!clear)
    return out;  // this agent joins once the job's earlier migrations are closed here; the coordinator
                 // repeats its request
  HandoverInfo info(message.migration, message.job, message.base, prepare.ranks, prepare.plan);
  if (message.to.role == Role::kSource) {
    auto& held = sources_[message.migration];
    held.state.info = std::move(info);
    CKPT_TRYV(apply(held, SourceEvent(PrepareReceived{}), now, out));
  } else {
    auto& held = targets_[message.migration];
    held.state.info = std::move(info);
    CKPT_TRYV(apply(held, TargetEvent(PrepareReceived{}), now, out));
  }
  return out;
}

// Refuses an unknown migration permanently (SW-5, and the same rule at the source). The refusal is durable
// before it is stated.
Result<Batches> AgentHandovers::on_unknown(const wire::CommitMessage& message) {
  const Reason reason(ErrorCode::kNotFound,
                      "This agent has no record of the migration: it was restarted, or the message is late");
  const HandoverInfo info(message.migration, message.job, message.base, {}, {});
  std::vector<Action> actions;
  if (message.to.role == Role::kTarget) {
    Record record(info, Role::kTarget, RecordKind::kRelinquished);
    record.reason = reason;
    actions.emplace_back(WriteRecord(record));
    actions.emplace_back(Send(Role::kTarget, Role::kCoordinator, wire::Relinquished(reason)));
    actions.emplace_back(Send(Role::kTarget, Role::kSource, wire::Relinquished(reason)));
    CKPT_TRY(state, restore_target(record));
    targets_[message.migration] = {state, state, true};
    return Batches{{{message.migration, Role::kTarget}, info, std::move(actions)}};
  }
  const auto* closed = std::get_if<wire::Closed>(&message.body);
  if (message.from.role == Role::kTarget || (closed && closed->side == Side::kTarget))
    if (!std::holds_alternative<wire::Query>(message.body) &&
        !std::holds_alternative<wire::Relinquished>(message.body))
      return Error(ErrorCode::kProtocol, "Message " + std::string(name_of(message.body)) +
                                             " belongs to a migration that never had a barrier on this node");
  Record record(info, Role::kSource, RecordKind::kResumed, message.base);
  record.owner = record.never_barrier = true;
  record.reason = reason;
  const wire::Resumed resumed(message.base, true, true);
  actions.emplace_back(WriteRecord(record));
  actions.emplace_back(Send(Role::kSource, Role::kCoordinator, resumed));
  actions.emplace_back(Send(Role::kSource, Role::kTarget, resumed));
  CKPT_TRY(state, restore_source(record));
  sources_[message.migration] = {state, state, true};
  return Batches{{{message.migration, Role::kSource}, info, std::move(actions)}};
}

Result<Batches> AgentHandovers::on_event(HandoverKey key, const SourceEvent& event, Nanos now) {
  const auto it = sources_.find(key.migration);
  if (key.role != Role::kSource || it == sources_.end()) return not_here(key);
  Batches out;
  it->second.fresh = false;
  CKPT_TRYV(apply(it->second, event, now, out));
  return out;
}

Result<Batches> AgentHandovers::on_event(HandoverKey key, const TargetEvent& event, Nanos now) {
  const auto it = targets_.find(key.migration);
  if (key.role != Role::kTarget || it == targets_.end()) return not_here(key);
  Batches out;
  it->second.fresh = false;
  CKPT_TRYV(apply(it->second, event, now, out));
  return out;
}

template <class State>
Result<void> AgentHandovers::fail_record(std::map<MigrationId, Held<State>>& machines, MigrationId id,
                                         const Reason& reason, Nanos now, Batches& out) {
  const auto it = machines.find(id);
  if (it == machines.end()) return ok();
  if (it->second.fresh) {  // a tombstone that could not be written was never stated
    machines.erase(it);
    return ok();
  }
  it->second.state = it->second.before;
  return apply(it->second, RecordFailed(reason), now, out);
}

Result<Batches> AgentHandovers::record_failed(HandoverKey key, const Reason& reason, Nanos now) {
  Batches out;
  CKPT_TRYV(key.role == Role::kSource ? fail_record(sources_, key.migration, reason, now, out)
                                      : fail_record(targets_, key.migration, reason, now, out));
  return out;
}

bool AgentHandovers::may_run_freely(JobId job, Incarnation incarnation) const {
  const MigrationId newest = newest_of(job);
  for (const auto& [id, held] : sources_) {
    if (held.state.info.job != job || held.state.info.base < incarnation) continue;
    if (holds_job(held.state)) return false;
    if (id != newest || !std::holds_alternative<source::Released>(held.state.phase)) continue;
    // Within one node, the source released the job to this same agent.
    const TargetState* here = target(id);
    const auto* owned = here != nullptr ? std::get_if<target::Committed>(&here->phase) : nullptr;
    if (owned == nullptr || !owned->owner) return false;
  }
  return std::none_of(targets_.begin(), targets_.end(), [&](const auto& entry) {
    return entry.second.state.info.job == job && holds_job(entry.second.state);
  });
}

const SourceState* AgentHandovers::source(MigrationId migration) const {
  const auto it = sources_.find(migration);
  return it == sources_.end() ? nullptr : &it->second.state;
}

const TargetState* AgentHandovers::target(MigrationId migration) const {
  const auto it = targets_.find(migration);
  return it == targets_.end() ? nullptr : &it->second.state;
}

std::vector<std::pair<HandoverKey, JobId>> AgentHandovers::open() const {
  std::vector<std::pair<HandoverKey, JobId>> found;
  const auto collect = [&](const auto& machines, Role role) {
    for (const auto& [id, held] : machines) {
      if (!is_closed(held.state)) found.emplace_back(HandoverKey{id, role}, held.state.info.job);
    }
  };
  collect(sources_, Role::kSource);
  collect(targets_, Role::kTarget);
  return found;
}

MigrationId AgentHandovers::newest() const {
  const MigrationId source = sources_.empty() ? 0 : sources_.rbegin()->first;
  const MigrationId target = targets_.empty() ? 0 : targets_.rbegin()->first;
  return std::max(source, target);
}

bool AgentHandovers::idle() const {
  const auto closed = [](const auto& entry) { return is_closed(entry.second.state); };
  return std::all_of(sources_.begin(), sources_.end(), closed) &&
         std::all_of(targets_.begin(), targets_.end(), closed);
}

void AgentHandovers::forget(JobId job) {
  std::erase_if(sources_, [&](const auto& entry) { return entry.second.state.info.job == job; });
  std::erase_if(targets_, [&](const auto& entry) { return entry.second.state.info.job == job; });
}

}  // namespace ckpt::migration
