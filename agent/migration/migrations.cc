// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/migrations.h"

#include <spdlog/spdlog.h>

#include "agent/migration/modes/adopted_mode.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::agent {
using migration::HandoverInfo;
using migration::HandoverKey;
using wire::Role;

// The number of closed migrations that stay in memory. Their measurements are sent again after the
// coordinator was disconnected.
constexpr std::size_t kKeptSessions = 32;
// The time limit for settling a job. A slower job, such as one that CRIU still dumps, does not prevent its
// node from serving.
constexpr std::chrono::seconds kSettleWait{5};

Migrations::Migrations(MigrationContext& context, PeerLinks& peers, const RankParties& ranks,
                       Machines machines)
    : context_(context),
      peers_(peers),
      ranks_(ranks),
      driver_(machines.io, machines.disk, std::move(machines.journal), machines.timing, *this,
              std::move(machines.fatal)) {}

void Migrations::on_event(HandoverKey key, migration::SourceEvent event) {
  driver_.on_event(key, std::move(event));
}

void Migrations::on_event(HandoverKey key, migration::TargetEvent event) {
  driver_.on_event(key, std::move(event));
}

Migrations::SourcePtr& Migrations::source(const HandoverInfo& info) {
  SourcePtr& session = sources_[info.migration];
  if (!session) session = std::make_shared<SourceSession>(context_, *this, info);
  return session;
}

Migrations::TargetPtr& Migrations::target(const HandoverInfo& info) {
  TargetPtr& session = targets_[info.migration];
  if (!session) session = std::make_shared<TargetSession>(context_, *this, info);
  return session;
}

void Migrations::keep_peer(const HandoverKey& key, const HandoverInfo& info) {
  if (peer_nodes_.contains(key)) return;
  auto plan = wire::decode_plan(info.plan);
  if (!plan) return;  // a tombstone contains no facts about the other side
  const wire::MigrationPlan& known = *plan;
  const bool is_source = key.role == Role::kSource;
  const std::string& node = is_source ? known.target_node : known.source_node;
  peer_nodes_[key] = node;
  if (node == context_.config.node) return;
  peers_.keep(info.migration, node, is_source ? known.target_peer_address : known.source_peer_address,
              known.peer_token);
}

void Migrations::send(const HandoverKey& key, const HandoverInfo& info, const wire::CommitMessage& message) {
  keep_peer(key, info);
  if (message.to.role != Role::kCoordinator) return send_to_agent(key, message);
  send_report_before(message);
  if (const auto* failed = std::get_if<wire::Failed>(&message.body);
      failed != nullptr && message.from.role == Role::kSource) {
    if (auto it = sources_.find(message.migration); it != sources_.end())
      it->second->set_failure_reason(failed->reason.text);
  }
  context_.reports.send(message);
}

void Migrations::send_to_agent(const HandoverKey& key, const wire::CommitMessage& message) {
  const auto peer = peer_nodes_.find(key);
  if (peer != peer_nodes_.end() && peer->second == context_.config.node) {
    driver_.on_own_message(message);  // both sides are on this node
    return;
  }
  context_.reports.send(message);
  if (peer != peer_nodes_.end()) peers_.send(peer->second, message);
}

// Sends the measurements before the outcome, on the same connection. The coordinator creates its report when
// it receives the outcome.
void Migrations::send_report_before(const wire::CommitMessage& message) {
  const bool source_outcome =
      message.from.role == Role::kSource && (std::holds_alternative<wire::Released>(message.body) ||
                                             std::holds_alternative<wire::Resumed>(message.body));
  if (auto it = sources_.find(message.migration); source_outcome && it != sources_.end()) {
    if (const auto& report = it->second->report()) context_.reports.send(*report);
  }
  const bool target_outcome =
      message.from.role == Role::kTarget && std::holds_alternative<wire::Ran>(message.body);
  if (auto it = targets_.find(message.migration); target_outcome && it != targets_.end()) {
    if (const auto& report = it->second->report()) context_.reports.send(*report);
  }
}

void Migrations::report(const HandoverKey& key, const HandoverInfo& info, const migration::Report& report) {
  const std::string reason = report.reason.text.empty() ? "" : " reason " + report.reason.text;
  spdlog::info("switch {}: id {} role {} job {} incarnation {}{}", migration::to_string(report.kind),
               wire::migration_text(key.migration), wire::to_string(key.role), wire::job_text(info.job),
               report.k, reason);
}

void Migrations::perform(const HandoverKey& key, const HandoverInfo& info, const migration::Action& action) {
  keep_peer(key, info);
  if (key.role == Role::kSource) {
    source(info)->perform(action);
  } else {
    target(info)->perform(action);
  }
}

Result<void> Migrations::set_limits(const wire::SetLimits& limits) {
  const auto it = sources_.find(limits.migration);
  if (it == sources_.end()) {
    return Error(ErrorCode::kNotFound,
                 "Migration " + wire::migration_text(limits.migration) + " has no source on this node");
  }
  it->second->set_limits(limits.max_downtime_ns, limits.bandwidth_bytes_per_second);
  return ok();
}

Task<> Migrations::settle_after_restart() {
  settled_ = true;
  const auto settling = std::make_shared<Settling>(context_.executor);
  for (const auto& job : context_.jobs.all()) {
    ++settling->open;
    control::spawn(context_.executor, "settle", settle_counted(job, settling));
  }
  const auto until = std::chrono::steady_clock::now() + kSettleWait;
  bool in_time = true;
  while (settling->open > 0 && in_time) in_time = co_await settling->done.wait(until);
  if (settling->open > 0)
    spdlog::warn("jobs not settled yet: count {}; the node accepts requests meanwhile", settling->open);
}

Task<> Migrations::settle_counted(std::shared_ptr<Job> job, std::shared_ptr<Settling> settling) {
  co_await settle_known(std::move(job));
  if (--settling->open == 0) settling->done.notify();
}

Task<> Migrations::settle_known(std::shared_ptr<Job> job) {
  if (job->unknown()) co_return;  // known_again() settles this job later
  co_await settle(job);
  co_await withdraw_leftovers(job);
}

// Settles a job that has become known. No job may continue before the journal was read. A job of an open
// migration continues only through that migration.
void Migrations::known_again(const std::shared_ptr<Job>& job) {
  if (settled_ && !busy(job->id())) control::spawn(context_.executor, "settle", settle_known(job));
}

// Withdraws arrived memory from a job that runs with all its memory. The memory is left over from an agent
// that ended between the job's resume and the withdrawal, or during its copy. The leftover memory would keep
// allocations that the job frees.
Task<> Migrations::withdraw_leftovers(std::shared_ptr<Job> job) {
  if (job->ended() || !job->keeper()) co_return;
  const auto status = co_await job->keeper()->attach();
  if (!status || !job->keeper()) co_return;
  const local::Status& now = *status;
  if (now.phase != local::Phase::kRunning || now.memory != local::MemoryState::kMapped ||
      now.arrived_regions == 0)
    co_return;
  const auto withdrawn = co_await job->keeper()->withdraw(now.arrived_migration);
  spdlog::info("memory that a previous agent exported was withdrawn: job {} id {} regions {} done {}",
               wire::job_text(job->id()), wire::migration_text(now.arrived_migration), now.arrived_regions,
               withdrawn.has_value());
}

namespace {
bool stands_paused(const Job& job) {
  const local::Phase phase = job.phase();
  const bool dumped = phase == local::Phase::kDumped && job.record().spec.mode != MigrationMode::kCooperative;
  return !job.ended() && (dumped || phase == local::Phase::kPaused || phase == local::Phase::kPausing);
}
}  // namespace

Task<> Migrations::settle(std::shared_ptr<Job> job) {
  const auto& handovers = driver_.handovers();
  const JobRecord& record = job->record();
  if (record.role == wire::JobRole::kStandby && !record.ran) {
    const auto* state = handovers.target(record.migration);
    const bool committed = state && std::holds_alternative<migration::target::Committed>(state->phase);
    const bool is_rank = ranks_.has_promised(record.migration);
    if (is_rank)
      co_return;  // the rank's party gives orders to the rank, and detects the rank's end by these
                  // orders
    if (!committed) {
      spdlog::info("standby without a record ended: job {} id {}", wire::job_text(job->id()),
                   wire::migration_text(record.migration));
      co_await context_.jobs.remove(job);
      co_return;
    }
    if (job->ended()) {
      const HandoverKey key{record.migration, Role::kTarget};
      driver_.on_event(key, migration::TargetEvent(migration::InstanceDied(wire::Reason(
                                ErrorCode::kAborted, "The instance ended while its agent was not running"))));
    }
    co_return;
  }
  const AsyncMutex::Held turn = co_await job->resume_turn().take();
  if (!stands_paused(*job) || !job->keeper() || !handovers.may_run_freely(job->id(), job->incarnation()))
    co_return;
  if (!ranks_.may_run_freely(*job)) co_return;
  if (record.spec.mode == MigrationMode::kAdopted) {
    auto back = co_await put_adopted_back(context_, job, job->gpu());
    if (!back)
      spdlog::error("paused process not continued: job {} reason {}", wire::job_text(job->id()),
                    back.error().to_string());
  }
  if (record.spec.mode == MigrationMode::kTransparent) {
    // The agent may have ended while it saved the job. The context and the memory are then restored to their
    // former places.
    const auto mode = make_source_mode(context_, JobOperation::snapshot(record.spec, job->incarnation()));
    auto back = co_await mode->go_back(job);
    if (!back)
      spdlog::error("paused process not resumed on its GPU: job {} reason {}", wire::job_text(job->id()),
                    back.error().to_string());
    if (!job->keeper()) co_return;
  }
  local::Resume resume;
  resume.incarnation = job->incarnation();
  auto running = co_await job->keeper()->resume(resume, UniqueFd{});
  if (running) {
    spdlog::info("paused job resumed: job {} incarnation {}", wire::job_text(job->id()), job->incarnation());
    job->runs_as(job->incarnation());
  } else {
    spdlog::error("paused job not resumed: job {} reason {}", wire::job_text(job->id()),
                  running.error().to_string());
  }
}

void Migrations::restate() {
  for (const auto& [id, session] : sources_) {
    if (const auto& report = session->report(); report && report->last_ack_ns != 0)
      context_.reports.send(*report);
  }
  for (const auto& [id, session] : targets_) {
    if (const auto& report = session->report(); report && report->resumed_ns != 0)
      context_.reports.send(*report);
  }
}

bool Migrations::busy(wire::JobId job) const {
  if (ranks_.is_open(job)) return true;
  const auto& handovers = driver_.handovers();
  for (const auto& [id, session] : sources_) {
    const auto* state = handovers.source(id);
    if (session->info().job == job && state && !migration::is_closed(*state)) return true;
  }
  for (const auto& [id, session] : targets_) {
    const auto* state = handovers.target(id);
    if (session->info().job == job && state && !migration::is_closed(*state)) return true;
  }
  return false;
}

std::optional<PeerLinks::OtherSide> Migrations::other_side(wire::MigrationId migration) const {
  const auto* source = driver_.handovers().source(migration);
  const auto* target = driver_.handovers().target(migration);
  if (source == nullptr && target == nullptr) return std::nullopt;
  const auto plan = wire::decode_plan(source != nullptr ? source->info.plan : target->info.plan);
  if (!plan) return std::nullopt;
  const wire::MigrationPlan& known = *plan;
  if (source != nullptr) return PeerLinks::OtherSide{known.target_node, Role::kTarget};
  return PeerLinks::OtherSide{known.source_node, Role::kSource};
}

void Migrations::tidy() {
  const auto& handovers = driver_.handovers();
  std::erase_if(peer_nodes_, [&](const auto& entry) {
    const HandoverKey& key = entry.first;
    const auto* source = key.role == Role::kSource ? handovers.source(key.migration) : nullptr;
    const auto* target = key.role == Role::kTarget ? handovers.target(key.migration) : nullptr;
    const bool open =
        (source && !migration::is_closed(*source)) || (target && !migration::is_closed(*target));
    if (!open) peers_.drop(key.migration);
    return !open;
  });
  const auto drop_oldest = [&](auto& sessions, auto is_open) {
    for (auto it = sessions.begin(); sessions.size() > kKeptSessions && it != sessions.end();) {
      it = is_open(it->first) ? std::next(it) : sessions.erase(it);
    }
  };
  drop_oldest(sources_, [&](wire::MigrationId id) {
    const auto* state = handovers.source(id);
    return state && !migration::is_closed(*state);
  });
  drop_oldest(targets_, [&](wire::MigrationId id) {
    const auto* state = handovers.target(id);
    return state && !migration::is_closed(*state);
  });
}

}  // namespace ckpt::agent
