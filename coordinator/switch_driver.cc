// SPDX-License-Identifier: Apache-2.0
// The half of MigrationTable that drives the pure machines: batches, journal, timers, messages, restart.
#include <spdlog/spdlog.h>

#include "coordinator/migrations.h"
#include "libckpt/base/clock.h"
#include "libckpt/base/fault.h"

namespace ckpt::coordinator {
namespace {

using migration::RecordKind;
using wire::Party;

constexpr std::uint64_t kCompactAboveBytes = 4 << 20;

void fault_after_record(RecordKind kind) {
  if (kind == RecordKind::kBegun) fault_point(FaultPoint::kCoordinatorBegun);
  if (kind == RecordKind::kGranted) fault_point(FaultPoint::kCoordinatorGrantedDurable);
  if (kind == RecordKind::kClosed) fault_point(FaultPoint::kCoordinatorClosedDurable);
  if (kind == RecordKind::kAborted) fault_point(FaultPoint::kCoordinatorAbortedDurable);
}

void fault_before_message(const wire::SwitchBody& body) {
  if (std::holds_alternative<wire::Committed>(body)) fault_point(FaultPoint::kCoordinatorHeardCommitted);
  if (std::holds_alternative<wire::Released>(body)) fault_point(FaultPoint::kCoordinatorHeardReleased);
}

}  // namespace

MigrationTable::MigrationTable(Parts parts, migration::Journal journal, migration::Timing timing,
                               std::function<void(const Error&)> fatal)
    : parts_(parts),
      journal_(std::move(journal)),
      switches_(timing),
      fatal_(std::move(fatal)),
      changed_(parts.executor) {
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
  std::vector<migration::Record> records = journal_.records();
  std::erase_if(records,
                [this](const migration::Record& record) { return was_removed(record.info.migration); });
  for (const migration::Record& record : records) {
    if (!entry(record.info).settled) unsettled_.insert(record.info.migration);
    // The journal is durable before the store is: the store may not know any more that it gave the id.
    CKPT_TRYV(parts_.store.count_above(0, record.info.migration));
  }
  CKPT_TRY(batches, switches_.restore(records, now_ns()));
  execute(batches);
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
  const migration::CoordinatorState* state = switches_.find(m.id);
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

void MigrationTable::execute(const migration::Batches& batches) {
  for (const migration::Batch& batch : batches) execute(batch);
}

void MigrationTable::execute(const migration::Batch& batch) {
  bool started = false;
  for (const migration::Action& action : batch.actions) {
    if (!perform(batch, action)) return;
    if (const auto* said = std::get_if<migration::Send>(&action)) {
      started = started || std::holds_alternative<wire::Start>(said->body);
      if (std::holds_alternative<wire::Commit>(said->body)) fault_point(FaultPoint::kCoordinatorCommitSent);
    }
  }
  if (started) fault_point(FaultPoint::kCoordinatorPrepared);
}

bool MigrationTable::perform(const migration::Batch& batch, const migration::Action& action) {
  const MigrationId id = batch.info.migration;
  if (const auto* record = std::get_if<migration::WriteRecord>(&action)) return write(batch, record->record);
  if (const auto* said = std::get_if<migration::Send>(&action)) {
    send(batch, *said);
  } else if (const auto* timer = std::get_if<migration::ArmTimer>(&action)) {
    arm(id, *timer);
  } else if (const auto* disarm = std::get_if<migration::DisarmTimer>(&action)) {
    timers_.erase({id, disarm->timer});
  } else if (const auto* report = std::get_if<migration::Report>(&action)) {
    on_report(entry(batch.info), *report);
  } else {
    spdlog::error("migration {}: {} is no action of a coordinator", migration_text(id),
                  migration::describe(action));
  }
  return true;
}

bool MigrationTable::write(const migration::Batch& batch, const migration::Record& record) {
  auto written = journal_.append(record);
  if (written) {
    fault_after_record(record.kind);
    return true;
  }
  const Error& error = written.assume_error();
  if (error.code() != ErrorCode::kRefused) {
    fatal_(error);
    return false;
  }
  spdlog::error("migration {}: record {} refused: {}", migration_text(batch.info.migration),
                migration::to_string(record.kind), error.to_string());
  auto batches = switches_.record_failed(batch.key, wire::Reason(error), now_ns());
  if (batches)
    execute(batches.assume_value());
  else
    spdlog::error("migration {}: {}", migration_text(batch.info.migration),
                  batches.assume_error().to_string());
  return false;
}

const std::string& MigrationTable::node_of(const Migration& m, Party party) const {
  return party == Party::kSource ? m.from.node : m.to.node;
}

void MigrationTable::send(const migration::Batch& batch, const migration::Send& send) {
  const wire::SwitchMessage message(batch.info.migration, batch.info.job, batch.info.base, send.from, send.to,
                                    send.body);
  const std::string& node = node_of(entry(batch.info), send.to);
  const bool sent = parts_.nodes.tell(node, message);
  spdlog::debug("migration {}: {} to {} ({}){}", migration_text(batch.info.migration),
                wire::name_of(send.body), to_string(send.to), node, sent ? "" : ": not connected");
}

void MigrationTable::arm(MigrationId id, const migration::ArmTimer& action) {
  auto after = std::chrono::milliseconds(action.ms);
  if (const Migration* m = find(id);
      action.timer == migration::Timer::kMigration && m != nullptr && m->timeout_ms > 0)
    after = std::chrono::milliseconds(m->timeout_ms);
  auto timer = std::make_shared<control::asio::steady_timer>(parts_.executor, after);
  // Replacing the entry destroys an armed one, which cancels it.
  timers_[{id, action.timer}] = timer;
  timer->async_wait([this, id, kind = action.timer, raw = timer.get()](boost::system::error_code code) {
    if (code) return;
    const auto at = timers_.find({id, kind});
    if (at == timers_.end() || at->second.get() != raw) return;  // fired, but replaced before this ran
    timers_.erase(at);
    fire(id, kind);
  });
}

void MigrationTable::fire(MigrationId id, migration::Timer timer) {
  if (timer == migration::Timer::kMigration) {
    const auto at = migrations_.find(id);
    if (at != migrations_.end() && at->second.abort_cause == AbortCause::kNone) {
      at->second.abort_cause = AbortCause::kTimeout;
      save(at->second);
    }
  }
  feed(id, migration::TimerFired(timer));
}

void MigrationTable::feed(MigrationId id, const migration::CoordinatorEvent& event) {
  auto batches = switches_.on_event(id, event, now_ns());
  if (!batches) {
    spdlog::warn("migration {}: {}", migration_text(id), batches.assume_error().to_string());
    return;
  }
  execute(batches.assume_value());
  take_owners_word(id);
  look_whether_settled(id);
  compact_if_large();
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
  fault_before_message(message.body);
  auto batches = switches_.on_message(message, now_ns());
  if (!batches) {
    spdlog::warn("migration {}: {} of node {}: {}", id, wire::name_of(message.body), node.row.name,
                 batches.assume_error().to_string());
    return;
  }
  execute(batches.assume_value());
  take_owners_word(message.migration);
  look_whether_settled(message.migration);
  compact_if_large();
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
    const migration::CoordinatorState* state = switches_.find(id);
    if (m == nullptr || state == nullptr || migration::is_settled(*state)) continue;
    for (const Side side : {Side::kSource, Side::kTarget}) {
      if (node.row.name != (side == Side::kSource ? m->from.node : m->to.node)) continue;
      if (connected)
        feed(id, migration::AgentConnected(side));
      else
        feed(id, migration::AgentDisconnected(side));
    }
  }
}

void MigrationTable::compact_if_large() {
  if (journal_.size_bytes() < kCompactAboveBytes) return;
  const auto forget = [this](const migration::Record& record) {
    if (was_removed(record.info.migration)) return true;
    const Migration* m = find(record.info.migration);
    const Job* job = parts_.jobs.find(record.info.job);
    return m != nullptr && m->settled && (job == nullptr || is_ended(job->state));
  };
  if (auto compacted = journal_.compact(forget); !compacted)
    spdlog::warn("the journal was not compacted: {}", compacted.assume_error().to_string());
}

}  // namespace ckpt::coordinator
