// SPDX-License-Identifier: Apache-2.0
#include "libckpt/protocol/handover/coordinator_handovers.h"

#include <algorithm>

#include "libckpt/protocol/wire/ids.h"

namespace ckpt::migration {

Result<void> CoordinatorHandovers::apply(Held& held, const CoordinatorEvent& event, Nanos now, Batches& out) {
  CKPT_TRY(next, step(held.state, event, now, timing_));
  held.before = std::exchange(held.state, std::move(next.state));
  if (!next.actions.empty())
    out.push_back(
        {{held.state.info.migration, Role::kCoordinator}, held.state.info, std::move(next.actions)});
  return ok();
}

Result<Batches> CoordinatorHandovers::restore(std::span<const Record> records, Nanos now) {
  leases_over_ = now + (std::int64_t{timing_.lease_term_ms} + timing_.lease_drift_ms) * kNanosPerMs;
  for (const Record& record : records) {
    if (record.party != Role::kCoordinator)
      return Error(ErrorCode::kCorrupt, "The coordinator's journal has a record of an agent");
    CKPT_TRY(state, restore_coordinator(record));
    handovers_[record.info.migration] = {state, state, false};
  }
  // An agent that missed the end of an older migration sends a query by itself.
  for (const auto& [id, held] : handovers_) newest_[held.state.info.job] = id;
  Batches out;
  for (auto& [id, held] : handovers_) {
    if (is_closed(held.state) && newest_[held.state.info.job] != id) continue;
    CKPT_TRYV(apply(held, Restarted{}, now, out));
  }
  return out;
}

Result<Batches> CoordinatorHandovers::begin(HandoverInfo info, bool source_connected, bool target_connected,
                                            Nanos now) {
  if (const auto* open = open_of(info.job))
    return Error(ErrorCode::kRefused, "Job " + wire::job_text(info.job) + " is in migration " +
                                          wire::migration_text(open->info.migration) +
                                          " already; wait for it or abort it");
  // Ids ascend only within a job. Migrations of different jobs may begin in a different order from their ids.
  const auto newest = newest_.find(info.job);
  const bool is_older = newest != newest_.end() && newest->second >= info.migration;
  if (is_older || handovers_.contains(info.migration))
    return Error(ErrorCode::kInternal,
                 "Migration id " + wire::migration_text(info.migration) + " is already in use");
  newest_[info.job] = info.migration;
  Held& held = handovers_[info.migration];
  held.state.info = std::move(info);
  held.state.connected = {source_connected, target_connected};
  held.state.last_message = {now, now};
  Batches out;
  CKPT_TRYV(apply(held, MigrateRequested{}, now, out));
  return out;
}

Result<Batches> CoordinatorHandovers::recover(HandoverInfo info, Nanos now) {
  if (handovers_.contains(info.migration))
    return Error(ErrorCode::kInvalidArgument,
                 "Migration " + wire::migration_text(info.migration) + " is already known");
  MigrationId& newest = newest_[info.job];
  newest = std::max(newest, info.migration);
  const MigrationId id = info.migration;
  CoordinatorState state = forgotten_coordinator(std::move(info), leases_over_);
  Held& held = handovers_[id] = {state, state, false};
  Batches out;
  CKPT_TRYV(apply(held, Restarted{}, now, out));
  return out;
}

Result<Batches> CoordinatorHandovers::on_message(const wire::CommitMessage& message, Nanos now) {
  const auto it = handovers_.find(message.migration);
  if (it == handovers_.end())
    return Error(ErrorCode::kNotFound,
                 "Migration " + wire::migration_text(message.migration) + " is unknown");
  if (it->second.state.info.job != message.job || it->second.state.info.base != message.base)
    return Error(ErrorCode::kProtocol, "Migration " + wire::migration_text(message.migration) +
                                           " does not belong to job " + wire::job_text(message.job));
  if (message.to.role != Role::kCoordinator)
    return Error(ErrorCode::kProtocol, "A message for an agent must be relayed, not handled");
  Batches out;
  it->second.fresh = false;
  CKPT_TRYV(apply(it->second, Message(message.from.role, message.body), now, out));
  return out;
}

Result<Batches> CoordinatorHandovers::on_event(MigrationId migration, const CoordinatorEvent& event,
                                               Nanos now) {
  const auto it = handovers_.find(migration);
  if (it == handovers_.end())
    return Error(ErrorCode::kNotFound, "Migration " + wire::migration_text(migration) + " is unknown");
  Batches out;
  it->second.fresh = false;
  CKPT_TRYV(apply(it->second, event, now, out));
  return out;
}

Result<Batches> CoordinatorHandovers::record_failed(HandoverKey key, const Reason& reason, Nanos now) {
  Batches out;
  const auto it = handovers_.find(key.migration);
  if (it == handovers_.end()) return out;
  if (it->second.fresh) {  // BEGUN could not be written: the migration never began
    handovers_.erase(it);
    return out;
  }
  it->second.state = it->second.before;
  CKPT_TRYV(apply(it->second, RecordFailed(reason), now, out));
  return out;
}

const CoordinatorState* CoordinatorHandovers::find(MigrationId migration) const {
  const auto it = handovers_.find(migration);
  return it == handovers_.end() ? nullptr : &it->second.state;
}

const CoordinatorState* CoordinatorHandovers::open_of(JobId job) const {
  const auto newest = newest_.find(job);
  const CoordinatorState* state = newest == newest_.end() ? nullptr : find(newest->second);
  return state == nullptr || is_closed(*state) ? nullptr : state;
}

void CoordinatorHandovers::forget(JobId job) {
  std::erase_if(handovers_, [&](const auto& entry) { return entry.second.state.info.job == job; });
  newest_.erase(job);
}

void CoordinatorHandovers::erase_migration(MigrationId migration) {
  const auto it = handovers_.find(migration);
  if (it == handovers_.end()) return;
  const auto newest = newest_.find(it->second.state.info.job);
  if (newest != newest_.end() && newest->second == migration) newest_.erase(newest);
  handovers_.erase(it);
}

}  // namespace ckpt::migration
