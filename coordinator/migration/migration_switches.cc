// SPDX-License-Identifier: Apache-2.0
// What the switch and MigrationTable tell each other: restart, messages, presence of nodes, and which
// records need not stay.
#include <spdlog/spdlog.h>

#include "coordinator/migration/migrations.h"

namespace ckpt::coordinator {
namespace {

using wire::Party;

}  // namespace

MigrationTable::MigrationTable(Parts parts, migration::Journal journal, migration::Timing timing,
                               std::function<void(const Error&)> fatal)
    : parts_(parts),
      changed_(parts.executor),
      driver_(parts.executor, std::move(journal), timing, *this, std::move(fatal)) {
  parts_.jobs.changed().subscribe([this] {
    if (!settle_timers_.empty()) control::asio::post(parts_.executor, [this] { settle_again(); });
  });
}

Result<void> MigrationTable::restore() {
  CKPT_TRY(stored, parts_.store.migrations());
  for (Migration& m : stored) {
    const MigrationId id = m.id;
    index(migrations_.emplace(id, std::move(m)).first->second);
  }
  CKPT_TRY(removed, parts_.store.highest_removed_migration());
  removed_up_to_ = removed;
  std::vector<migration::Record> records = driver_.records();
  std::erase_if(records,
                [this](const migration::Record& record) { return was_removed(record.info.migration); });
  for (const migration::Record& record : records) {
    if (!entry(record.info).settled) unsettled_.insert(record.info.migration);
    // The journal is durable before the store is: the store may not know any more that it gave the id.
    CKPT_TRYV(parts_.store.count_above(0, record.info.migration));
  }
  CKPT_TRYV(driver_.restore(records));
  const std::set<MigrationId> open = open_;
  for (const MigrationId id : open) adopt_outcome(migrations_.at(id));
  return ok();
}

// A record whose migration the table does not know (its store was lost) is shown as far as the record tells.
Migration& MigrationTable::entry(const migration::SwitchInfo& info) {
  const auto [at, added] = migrations_.try_emplace(info.migration);
  Migration& m = at->second;
  if (!added && (!m.open() || plans_.contains(m.id))) return m;
  auto plan = wire::decode_plan(info.plan);
  if (plan) plans_[info.migration] = plan.assume_value();
  if (!added) return m;
  m.id = info.migration;
  m.job = info.job;
  m.base = info.base;
  m.incarnation = info.base;
  m.started_ms = wall_clock_ms();
  if (plan) {
    const wire::MigrationPlan& p = plan.assume_value();
    m.job_name = p.spec.name;
    m.options = p.options;
    m.from = Place(p.source_node, p.spec.ranks.front().gpu_index);
    m.to = Place(p.target_node, p.target_ranks.front().gpu_index);
  }
  index(m);
  return m;
}

// After a restart: what the journal decided may not have reached the table before the crash.
void MigrationTable::adopt_outcome(Migration& m) {
  const migration::CoordinatorState* state = driver_.switches().find(m.id);
  if (m.phase == MigrationPhase::kClosing) return settle_when_measured(m);
  if (state == nullptr)
    return decide(m, MigrationResult::kFailed, "The coordinator was restarted before the migration began");
  if (!migration::is_closed(*state)) return;
  const auto* closed = std::get_if<migration::coordinator::Closed>(&state->phase);
  if (closed != nullptr && closed->side == Side::kTarget) return decide(m, MigrationResult::kDone, {});
  const auto kind =
      closed != nullptr ? migration::ReportKind::kClosedSource : migration::ReportKind::kAborted;
  on_report(m, migration::Report(kind, m.incarnation, state->reason));
}

const std::string& MigrationTable::node_of(const Migration& m, Party party) const {
  return party == Party::kSource ? m.from.node : m.to.node;
}

// Only now: an abort that comes while the end is being recorded was not its cause.
void MigrationTable::taking(MigrationId id, const migration::CoordinatorEvent& event) {
  const auto at = migrations_.find(id);
  if (at == migrations_.end() || at->second.phase >= MigrationPhase::kClosing) return;
  Migration& m = at->second;
  const auto* fired = std::get_if<migration::TimerFired>(&event);
  const bool late = fired != nullptr && fired->timer == migration::Timer::kMigration;
  if (std::holds_alternative<migration::AbortRequested>(event))
    m.abort_cause = AbortCause::kUser;
  else if (late && m.abort_cause == AbortCause::kNone)
    m.abort_cause = AbortCause::kTimeout;
  else
    return;
  save(m);
}

void MigrationTable::send(const migration::SwitchInfo& info, const migration::Send& said) {
  const wire::SwitchMessage message(info.migration, info.job, info.base, said.from, said.to, said.body);
  const std::string& node = node_of(entry(info), said.to);
  const bool sent = parts_.nodes.tell(node, message);
  spdlog::debug("migration {}: {} to {} ({}){}", migration_text(info.migration), wire::name_of(said.body),
                to_string(said.to), node, sent ? "" : ": not connected");
}

void MigrationTable::report(const migration::SwitchInfo& info, const migration::Report& report) {
  on_report(entry(info), report);
}

void MigrationTable::not_begun(MigrationId id, const Error& why) {
  decide(migrations_.at(id), MigrationResult::kRefused, why.to_string());
}

void MigrationTable::handled(MigrationId id) {
  take_owners_word(id);
  look_whether_settled(id);
}

std::chrono::milliseconds MigrationTable::duration(MigrationId id, const migration::ArmTimer& timer) const {
  const Migration* m = timer.timer == migration::Timer::kMigration ? find(id) : nullptr;
  return std::chrono::milliseconds(m != nullptr && m->timeout_ms > 0 ? m->timeout_ms : timer.ms);
}

// A record may go when the store says how its migration ended, and that nobody will ask about it.
control::Task<Result<SwitchEffects::Forget>> MigrationTable::forgettable() {
  store_settled();
  std::set<MigrationId> over;
  std::set<MigrationId> kept;
  for (const auto& [id, m] : migrations_) {
    const Job* job = parts_.jobs.find(m.job);
    const bool stored = m.settled && !unsaved_settled_.contains(id);
    if (stored && (job == nullptr || is_ended(job->state))) over.insert(id);
    if (id <= removed_up_to_) kept.insert(id);
  }
  const MigrationId removed_up_to = removed_up_to_;
  CKPT_CO_TRYV(co_await durable(parts_.sync));
  const Forget forget = [over = std::move(over), kept = std::move(kept),
                         removed_up_to](const migration::Record& record) {
    const MigrationId id = record.info.migration;
    return over.contains(id) || (id <= removed_up_to && !kept.contains(id));
  };
  co_return forget;
}

void MigrationTable::on_switch(const Node& node, const wire::SwitchMessage& message) {
  const auto at = migrations_.find(message.migration);
  const std::string id = migration_text(message.migration);
  if (at == migrations_.end() ||
      (node.row.name != at->second.from.node && node.row.name != at->second.to.node)) {
    spdlog::warn("node {} sent {} of migration {}, of which it is no part", node.row.name,
                 wire::name_of(message.body), id);
    return;
  }
  if (message.to != Party::kCoordinator) {
    parts_.nodes.tell(node_of(at->second, message.to), message);
    return;
  }
  spdlog::debug("migration {}: {} from {}", id, wire::name_of(message.body), to_string(message.from));
  driver_.on_message(message);
}

void MigrationTable::on_node_ready(const Node& node) {
  tell_presence(node, true);
}
void MigrationTable::on_node_lost(const Node& node) {
  tell_presence(node, false);
}

void MigrationTable::tell_presence(const Node& node, bool connected) {
  const std::set<MigrationId> unsettled = unsettled_;
  for (const MigrationId id : unsettled) {
    const Migration* m = find(id);
    const migration::CoordinatorState* state = driver_.switches().find(id);
    if (m == nullptr || state == nullptr || migration::is_settled(*state)) continue;
    for (const Side side : {Side::kSource, Side::kTarget}) {
      if (node.row.name != (side == Side::kSource ? m->from.node : m->to.node)) continue;
      if (connected)
        driver_.on_event(id, migration::AgentConnected(side));
      else
        driver_.on_event(id, migration::AgentDisconnected(side));
    }
  }
}

}  // namespace ckpt::coordinator
