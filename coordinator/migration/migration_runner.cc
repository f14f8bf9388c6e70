// SPDX-License-Identifier: Apache-2.0
// The part of MigrationRunner that handles requests for migrations, and restarts. Messages of the handover
// are in migration_messages.cc.
#include "coordinator/migration/migration_runner.h"

#include <fmt/format.h>

#include "coordinator/migration/migration_rows.h"
#include "coordinator/migration/network_check.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {
namespace {

constexpr std::chrono::seconds kDecisionPollInterval{1};  // the longest wait between two checks; a
                                                          // notification ends the wait earlier
constexpr std::chrono::milliseconds kRetryInterval{20};

std::vector<wire::RankPlace> rank_places(const wire::MigrationPlan& plan) {
  std::vector<wire::RankPlace> places;
  for (std::size_t i = 0; i < plan.spec.ranks.size(); ++i)
    places.emplace_back(plan.spec.ranks[i].rank, plan.source_node,
                        std::to_string(plan.spec.ranks[i].gpu_index), plan.target_node,
                        std::to_string(plan.target_ranks[i].gpu_index));
  return places;
}

Error no_migration(MigrationId id) {
  return {ErrorCode::kNotFound, "There is no migration " + migration_text(id)};
}

}  // namespace

MigrationRunner::MigrationRunner(Dependencies deps, migration::Journal journal, migration::Timing timing,
                                 std::function<void(const Error&)> fatal)
    : deps_(std::move(deps)),
      outcomes_({deps_.table, deps_.events, deps_.nodes, deps_.jobs, deps_.job_runner, deps_.executor}),
      driver_(deps_.executor, std::move(journal), timing, *this, std::move(fatal)),
      checked_(deps_.executor),
      late_grace_(timing.silence_ms) {
  take_frames();
}

Result<void> MigrationRunner::restore() {
  std::vector<migration::Record> records = driver_.records();
  std::erase_if(records, [this](const migration::Record& record) {
    return deps_.table.was_removed(record.info.migration);
  });
  for (const migration::Record& record : records) {
    if (!entry(record.info).settled) deps_.table.mark_unsettled(record.info.migration);
    // The journal becomes durable before the store. So the store may not know that this id was assigned.
    CKPT_TRYV(deps_.table.skip_ids_to(record.info.migration));
  }
  CKPT_TRYV(driver_.restore(records));
  const std::set<MigrationId> open = deps_.table.open_ids();
  for (const MigrationId id : open) {
    Migration& m = *deps_.table.find(id);
    if (m.gang_move == 0) adopt_outcome(m);
  }
  return ok();
}

// Returns the table's row for a record. Inserts the row if the store has lost it. Also stores the plan of an
// open migration.
Migration& MigrationRunner::entry(const migration::HandoverInfo& info) {
  Migration* known = deps_.table.find(info.migration);
  if (known != nullptr && (!known->open() || deps_.table.plan_of(known->id) != nullptr)) return *known;
  auto plan = wire::decode_plan(info.plan);
  if (known == nullptr)
    known = &deps_.table.insert(row_of_record(info.migration, info.job, info.base, plan ? &*plan : nullptr));
  if (plan) deps_.table.store_plan(info.migration, *std::move(plan));
  return *known;
}

// Applies the journal's decision after a restart. The decision may not have reached the table before the
// crash.
void MigrationRunner::adopt_outcome(Migration& m) {
  const migration::CoordinatorState* state = driver_.handovers().find(m.id);
  if (m.phase == MigrationPhase::kClosing) return outcomes_.close_when_measured(m);
  if (state == nullptr)
    return outcomes_.decide(m, MigrationResult::kFailed,
                            "The coordinator was restarted before the migration began", 0);
  if (!migration::is_closed(*state)) return abort_again(m);
  const Incarnation owner = owner_of(m.id);
  const auto* closed = std::get_if<migration::coordinator::Closed>(&state->phase);
  if (closed != nullptr && closed->side == Side::kTarget)
    return outcomes_.decide(m, MigrationResult::kDone, {}, owner);
  const auto kind =
      closed != nullptr ? migration::ReportKind::kClosedSource : migration::ReportKind::kAborted;
  outcomes_.on_report(m, migration::Report(kind, m.incarnation, state->reason), owner);
}

// Repeats an abort that was requested before the restart, because the request has no record from GRANTED on.
void MigrationRunner::abort_again(const Migration& m) {
  const bool by_user = m.abort_cause == AbortCause::kUser;
  if (!by_user && m.abort_cause != AbortCause::kTarget) return;
  const wire::Reason why(by_user ? ErrorCode::kAborted : ErrorCode::kUnavailable,
                         "The migration was aborted before the coordinator restarted");
  driver_.on_event(m.id, migration::AbortRequested(false, why));
}

Result<Migration*> MigrationRunner::begin(const Job& job, const Request& request, wire::MigrationPlan plan) {
  if (const Migration* open = deps_.table.open_of(job.id))
    return Error(ErrorCode::kRefused, "Migration " + label(*open) + " is open");
  Migration row = row_of_move(job, request.to, plan);
  row.timeout_ms = request.timeout_ms;
  row.expected_pause_ms = request.expected_pause_ms;
  row.reason = request.reason;
  if (request.network.transport != wire::LaneTransport::kInvalid)
    row.transport = to_string(request.network.transport);
  std::vector<wire::RankPlace> places = rank_places(plan);
  auto encoded = wire::encode(plan);
  CKPT_TRY(created, begin_row(deps_.table, deps_.events, std::move(row), std::move(plan)));
  Migration& added = *created;
  migration::HandoverInfo info(added.id, job.id, added.base, std::move(places), std::move(encoded));
  if (added.network.empty() || added.from.node == added.to.node) {
    CKPT_TRYV(start_handover(added, std::move(info)));
    return &added;
  }
  checking_.insert(added.id);
  control::spawn(deps_.executor, "begin of migration " + migration_text(added.id),
                 start(added.id, std::move(info), request.network));
  return &added;
}

control::Task<> MigrationRunner::start(MigrationId id, migration::HandoverInfo info, SharedNetwork network) {
  const Migration asked = *deps_.table.find(id);
  const auto reached = co_await check_network(deps_.calls, asked, std::move(network));
  Migration* m = deps_.table.find(id);
  if (checking_.erase(id) == 0 || m == nullptr) co_return;  // the migration was aborted in the meantime
  if (reached)
    (void)start_handover(*m, std::move(info));  // a refusal becomes the migration's result
  else
    outcomes_.decide(*m, MigrationResult::kRefused, reached.error().to_string(), owner_of(id));
  checked_.notify();
}

Result<void> MigrationRunner::start_handover(Migration& m, migration::HandoverInfo info) {
  const bool source_connected = deps_.nodes.connected(m.from.node);
  const bool target_connected = deps_.nodes.connected(m.to.node);
  auto begun = driver_.begin(std::move(info), source_connected, target_connected);
  if (begun) return ok();
  outcomes_.decide(m, MigrationResult::kRefused, begun.error().to_string(), owner_of(m.id));
  return begun.error();
}

control::Task<> MigrationRunner::network_checked(MigrationId id) {
  while (checking_.contains(id))
    co_await checked_.wait_until(std::chrono::steady_clock::now() + kDecisionPollInterval);
}

control::Task<Result<Migration*>> MigrationRunner::begun(MigrationId id) {
  co_await network_checked(id);
  co_await driver_.caught_up(id);
  Migration* m = deps_.table.find(id);
  if (m == nullptr) co_return no_migration(id);
  if (m->result == MigrationResult::kInterrupted) co_return m;
  if (driver_.handovers().find(id) == nullptr) co_return Error(ErrorCode::kRefused, m->error);
  co_return m;
}

Result<void> MigrationRunner::recover(const std::string& node, migration::HandoverInfo info) {
  const MigrationId id = info.migration;
  if (deps_.table.knows(id)) return ok();
  CKPT_TRY(plan, wire::decode_plan(info.plan));
  const bool takes_part = plan.source_node == node || plan.target_node == node;
  if (id == 0 || info.job == 0 || info.base == 0 || plan.spec.ranks.empty() || plan.target_ranks.empty() ||
      !takes_part)
    return Error(ErrorCode::kInvalidArgument,
                 "Node " + node + " did not describe a migration in which it takes part");
  CKPT_TRYV(deps_.table.skip_ids_to(id));
  entry(info);
  deps_.table.mark_unsettled(id);
  CKPT_TRYV(driver_.recover(std::move(info)));
  for (const std::string& side : {plan.source_node, plan.target_node}) {
    if (const Node* known = deps_.nodes.find(side); known != nullptr && known->connected())
      send_presence(*known, true);
  }
  return ok();
}

Result<void> MigrationRunner::abort(MigrationId id, const std::string& reason) {
  return abort_for(AbortCause::kUser, id, reason.empty() ? "A user requested the abort" : reason);
}

Result<void> MigrationRunner::give_up(MigrationId id, const std::string& reason) {
  return abort_for(AbortCause::kTarget, id, reason);
}

Result<void> MigrationRunner::abort_for(AbortCause cause, MigrationId id, const std::string& reason) {
  Migration* m = deps_.table.find(id);
  if (m == nullptr) return no_migration(id);
  if (m->phase == MigrationPhase::kCommitted ||
      (m->phase >= MigrationPhase::kClosing && m->runs_at == Side::kTarget))
    return Error(ErrorCode::kRefused,
                 "Too late to abort " + label(*m) + ": the job runs at " + to_text(m->to));
  if (m->phase >= MigrationPhase::kClosing)
    return Error(ErrorCode::kRefused,
                 "Migration " + label(*m) + " has ended; the job runs at " + to_text(m->from));
  if (m->gang_move != 0) {
    deps_.table.gang_abort_asked().notify(m->gang_move, cause, reason);
    return ok();
  }
  const bool by_user = cause == AbortCause::kUser;
  const wire::Reason wire_reason(by_user ? ErrorCode::kAborted : ErrorCode::kUnavailable, reason);
  if (checking_.erase(id) != 0) {
    m->abort_cause = cause;
    outcomes_.decide(*m, by_user ? MigrationResult::kInterrupted : MigrationResult::kRefused, reason,
                     owner_of(id));
    checked_.notify();
    return ok();
  }
  driver_.on_event(id, migration::AbortRequested(false, wire_reason));
  return ok();
}

control::Task<Result<void>> MigrationRunner::resolve(MigrationId id, Side side) {
  co_await network_checked(id);
  const Migration* asked = deps_.table.find(id);
  if (asked == nullptr) co_return no_migration(id);
  if (asked->phase >= MigrationPhase::kClosing)
    co_return Error(ErrorCode::kRefused, "Migration " + label(*asked) + " has already ended");
  if (asked->gang_move != 0) {
    deps_.table.gang_resolve_asked().notify(asked->gang_move);
    co_return ok();
  }
  const migration::ResolveRequested event(side);
  CKPT_CO_TRYV(co_await driver_.handle(id, event));
  if (const Migration* resolved = deps_.table.find(id); resolved != nullptr)
    deps_.events.add("migration-phase",
                     fmt::format("migration {} was resolved by an operator: the {} keeps the job",
                                 label(*resolved), to_string(side)),
                     {}, resolved->job, id);
  co_return ok();
}

control::Task<Result<void>> MigrationRunner::set_limits(MigrationId id,
                                                        std::optional<std::int64_t> max_downtime_ns,
                                                        std::optional<std::uint64_t> bandwidth) {
  constexpr std::chrono::seconds kAnswerTime{10};
  co_await network_checked(id);
  co_await driver_.caught_up(id);  // the source has then received the order to prepare
  Migration* m = deps_.table.find(id);
  if (m == nullptr) co_return no_migration(id);
  if (m->phase > MigrationPhase::kGranted)
    co_return Error(ErrorCode::kRefused,
                    "Migration " + label(*m) + " has finished copying: limits have no effect");
  wire::SetLimits limits;
  limits.migration = id;
  if (max_downtime_ns) limits.max_downtime_ns = *max_downtime_ns;
  if (bandwidth) limits.bandwidth_bytes_per_second = static_cast<std::int64_t>(*bandwidth);
  const std::string source = m->from.node;
  const auto deadline = std::chrono::steady_clock::now() + kAnswerTime;
  for (;;) {
    const auto set = co_await deps_.calls.call(source, limits, kAnswerTime);
    m = deps_.table.find(id);
    if (m == nullptr) co_return no_migration(id);
    if (set) break;
    // The call is repeated, because a source that is about to prepare does not know the migration yet.
    const bool is_early =
        set.error().code() == ErrorCode::kNotFound && m->phase == MigrationPhase::kPreparing;
    if (!is_early || std::chrono::steady_clock::now() >= deadline) co_return set.error();
    control::asio::steady_timer again(deps_.executor, kRetryInterval);
    co_await again.async_wait(control::kTuple);
  }
  if (max_downtime_ns) m->options.max_downtime_ns = *max_downtime_ns;
  if (bandwidth) m->options.bandwidth_bytes_per_second = *bandwidth;
  deps_.table.save(*m);
  deps_.events.add("migration-limits", "limits of migration " + label(*m) + " changed", m->from.node, m->job,
                   id);
  co_return ok();
}

// Checks whether a migration may be removed. Without a handover there is no outcome that an agent could
// query.
bool MigrationRunner::may_leave(const Migration& m) const {
  if (m.gang_move != 0 && !m.settled) return false;
  if (m.open() || driver_.is_busy(m.id) || (!m.settled && driver_.handovers().find(m.id) != nullptr))
    return false;
  if (!deps_.table.is_newest_of_job(m)) return true;
  const Job* job = deps_.jobs.find(m.job);
  return job == nullptr || is_ended(job->state);
}

bool MigrationRunner::prune(const Retention& retention) {
  const auto may_go = [this](const Migration& m) { return may_leave(m); };
  const std::vector<MigrationId> removed = deps_.table.remove_old(retention, may_go);
  for (const MigrationId id : removed) driver_.forget(id);
  return removed.size() >= Retention::kBatch;
}

}  // namespace ckpt::coordinator
