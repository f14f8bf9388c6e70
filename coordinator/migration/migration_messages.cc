// SPDX-License-Identifier: Apache-2.0
// The part of MigrationRunner between the handover machines and the nodes: messages, reports, the presence of
// nodes, and the removal of journal records.
#include <spdlog/spdlog.h>

#include "coordinator/migration/migration_runner.h"
#include "coordinator/migration/move_limit.h"
#include "libckpt/base/clock.h"

namespace ckpt::coordinator {
namespace {

const std::string& node_of(const Migration& m, wire::Role party) {
  return party == wire::Role::kSource ? m.from.node : m.to.node;
}

// Checks whether the node may send the message. A node sends messages for its own side. In addition, the
// target repeats to the coordinator that the source has released.
bool may_state(const Migration& m, const std::string& node, const wire::CommitMessage& message) {
  if (message.from.role != wire::Role::kSource && message.from.role != wire::Role::kTarget) return false;
  if (node_of(m, message.from.role) == node) return true;
  return message.to.role == wire::Role::kCoordinator && message.from.role == wire::Role::kSource &&
         node == m.to.node && std::holds_alternative<wire::Released>(message.body);
}

}  // namespace

void MigrationRunner::take_frames() {
  using wire::FrameType;
  deps_.frames.subscribe(
      wire::CommitKind::kHandover,
      [this](const Node& node, const wire::CommitMessage& message, std::size_t bytes) -> Result<void> {
        on_handover(node, message, bytes);
        return ok();
      });
  deps_.frames.subscribe<wire::MigrationProgress>(
      FrameType::kMigrationProgress,
      [this](const Node& node, const wire::MigrationProgress& progress) { on_progress(node, progress); });
  deps_.frames.subscribe<wire::SourceReport>(
      FrameType::kSourceReport,
      [this](const Node& node, const wire::SourceReport& report) { on_source_report(node, report); });
  deps_.frames.subscribe<wire::TargetReport>(
      FrameType::kTargetReport,
      [this](const Node& node, const wire::TargetReport& report) { on_target_report(node, report); });
}

Incarnation MigrationRunner::owner_of(MigrationId id) const {
  const migration::CoordinatorState* state = driver_.handovers().find(id);
  return state == nullptr ? 0 : migration::owner_incarnation(*state);
}

// Sets the cause of an abort when the machine receives the event. An abort that arrives while the end is
// being recorded was not the cause of that end.
void MigrationRunner::before_event(MigrationId id, const migration::CoordinatorEvent& event) {
  Migration* m = deps_.table.find(id);
  if (m == nullptr || m->phase >= MigrationPhase::kClosing) return;
  const auto* fired = std::get_if<migration::TimerFired>(&event);
  const bool late = fired != nullptr && fired->timer == migration::Timer::kMigration;
  if (const auto* asked = std::get_if<migration::AbortRequested>(&event))
    m->abort_cause = asked->reason.code == ErrorCode::kUnavailable ? AbortCause::kTarget : AbortCause::kUser;
  else if (late && m->abort_cause == AbortCause::kNone)
    m->abort_cause = AbortCause::kTimeout;
  else
    return;
  deps_.table.save(*m);
}

void MigrationRunner::send(const migration::HandoverInfo& info, const migration::Send& sent) {
  const wire::CommitMessage message(info.migration, info.job, info.base, sent.from, sent.to, sent.body);
  const std::string& node = node_of(entry(info), sent.to);
  const bool left = deps_.calls.send(node, message);
  spdlog::debug("migration {}: {} to {} ({}){}", migration_text(info.migration), wire::name_of(sent.body),
                to_string(sent.to), node, left ? "" : ": not connected");
}

void MigrationRunner::report(const migration::HandoverInfo& info, const migration::Report& report) {
  outcomes_.on_report(entry(info), report, owner_of(info.migration));
}

void MigrationRunner::on_begin_refused(MigrationId id, const Error& error) {
  outcomes_.decide(*deps_.table.find(id), MigrationResult::kRefused, error.to_string(), owner_of(id));
}

void MigrationRunner::on_event_done(MigrationId id) {
  if (Migration* m = deps_.table.find(id)) outcomes_.on_owner(*m, owner_of(id));
  const migration::CoordinatorState* state = driver_.handovers().find(id);
  if (state == nullptr || migration::is_settled(*state)) deps_.table.mark_settled(id);
}

std::chrono::milliseconds MigrationRunner::duration(MigrationId id, const migration::ArmTimer& timer) const {
  const Migration* m = timer.timer == migration::Timer::kMigration ? deps_.table.find(id) : nullptr;
  if (m == nullptr || m->timeout_ms <= 0) return std::chrono::milliseconds(timer.ms);
  return left_of_limit(*m, wall_clock_ms(), late_grace_);
}

// Returns a function that selects the records that the journal may remove. The store must have the
// migration's outcome, and the fact that no agent will query the migration.
control::Task<Result<HandoverEffects::Forget>> MigrationRunner::forgettable() {
  deps_.table.store_settled();
  std::set<MigrationId> over;
  std::set<MigrationId> retained;
  const MigrationId removed_up_to = deps_.table.removed_up_to();
  for (const auto& [id, m] : deps_.table.all()) {
    const Job* job = deps_.jobs.find(m.job);
    const bool stored = deps_.table.is_settled_in_store(m);
    if (stored && (job == nullptr || is_ended(job->state))) over.insert(id);
    if (id <= removed_up_to) retained.insert(id);
  }
  CKPT_CO_TRYV(co_await durable(deps_.sync));
  const Forget forget = [over = std::move(over), retained = std::move(retained),
                         removed_up_to](const migration::Record& record) {
    const MigrationId id = record.info.migration;
    return over.contains(id) || (id <= removed_up_to && !retained.contains(id));
  };
  co_return forget;
}

std::optional<std::string> MigrationRunner::refusal(const Node& node, const wire::CommitMessage& message,
                                                    std::size_t bytes) const {
  const Migration* m = deps_.table.find(message.migration);
  if (m == nullptr || (node.row.name != m->from.node && node.row.name != m->to.node))
    return "the node does not take part in the migration";
  // Such a message is refused. A target that does not know the migration would give up the rank that it
  // prepares for the other commit.
  if (m->gang_move != 0)
    return "the migration is one of several ranks, which use a different commit protocol";
  if (!may_state(*m, node.row.name, message))
    return "the node is not the " + std::string(to_string(message.from.role));
  if (message.to.role == wire::Role::kCoordinator) return std::nullopt;
  // The message must name the migration's job and incarnation. An agent that does not know the migration
  // records its refusal for the job that the message names.
  if (message.job != m->job || message.base != m->base)
    return "the message names a different job or incarnation";
  if (bytes > wire::kMaxBetweenAgentsBytes)
    return std::to_string(bytes) + " bytes exceed the limit of messages between agents";
  // The message is not relayed, because an agent that was ordered to forget the job would record a migration
  // that it does not know.
  const Job* job = deps_.jobs.find(m->job);
  if (m->settled && (job == nullptr || is_ended(job->state))) return "the migration and its job have ended";
  return std::nullopt;
}

void MigrationRunner::on_handover(const Node& node, const wire::CommitMessage& message, std::size_t bytes) {
  const std::string id = migration_text(message.migration);
  if (const auto reason = refusal(node, message, bytes)) {
    if (const auto left_out = dropped_.turn(now_ns()))
      spdlog::warn(
          "{} of migration {}, sent by node {} for the {}, was dropped: {} ({} similar messages not logged)",
          wire::name_of(message.body), id, node.row.name, to_string(message.from.role), *reason, *left_out);
    return;
  }
  if (message.to.role != wire::Role::kCoordinator) {
    deps_.calls.relay(node_of(*deps_.table.find(message.migration), message.to.role), message);
    return;
  }
  spdlog::debug("migration {}: {} from {}", id, wire::name_of(message.body), to_string(message.from.role));
  driver_.on_message(message);
}

void MigrationRunner::on_node_ready(const Node& node) {
  send_presence(node, true);
}
void MigrationRunner::on_node_lost(const Node& node) {
  send_presence(node, false);
}

void MigrationRunner::send_presence(const Node& node, bool connected) {
  const std::set<MigrationId> unsettled = deps_.table.unsettled();
  for (const MigrationId id : unsettled) {
    const Migration* m = deps_.table.find(id);
    const migration::CoordinatorState* state = driver_.handovers().find(id);
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

Migration* MigrationRunner::checked(MigrationId id, const Node& node, Side side) {
  Migration* m = deps_.table.find(id);
  if (m != nullptr && node.row.name == (side == Side::kSource ? m->from.node : m->to.node)) return m;
  spdlog::warn("node {} reports on migration {}, but is not its {}", node.row.name, migration_text(id),
               to_string(side));
  return nullptr;
}

void MigrationRunner::on_progress(const Node& node, const wire::MigrationProgress& progress) {
  Migration* m = checked(progress.migration, node, Side::kSource);
  if (m == nullptr || m->phase >= MigrationPhase::kClosing) return;
  m->progress = progress;
  deps_.table.touch(*m);
}

void MigrationRunner::on_source_report(const Node& node, const wire::SourceReport& report) {
  Migration* m = checked(report.migration, node, Side::kSource);
  if (m != nullptr && m->open()) outcomes_.on_source_report(*m, report);
}

void MigrationRunner::on_target_report(const Node& node, const wire::TargetReport& report) {
  Migration* m = checked(report.migration, node, Side::kTarget);
  if (m == nullptr) return;
  if (report.memory_follows_ns > 0)
    outcomes_.on_memory_arrived(*m, report);
  else if (m->open())
    outcomes_.on_target_report(*m, report);
}

}  // namespace ckpt::coordinator
