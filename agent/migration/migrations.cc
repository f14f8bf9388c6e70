// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/migrations.h"

#include <spdlog/spdlog.h>

#include "libckpt/protocol/wire/ids.h"

namespace ckpt::agent {
using migration::HandoverInfo;
using migration::HandoverKey;
using wire::Role;

// The number of closed migrations that stay in memory. Their measurements are sent again after the
// coordinator was disconnected.
constexpr std::size_t kKeptSessions = 32;

Migrations::Migrations(MigrationContext& context, PeerLinks& peers, Machines machines)
    : context_(context),
      peers_(peers),
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

void Migrations::add_peer(const HandoverKey& key, const HandoverInfo& info) {
  if (peer_nodes_.contains(key)) return;
  auto plan = wire::decode_plan(info.plan);
  if (!plan) return;  // a tombstone contains no facts about the other side
  const wire::MigrationPlan& known = *plan;
  const bool is_source = key.role == Role::kSource;
  const std::string& node = is_source ? known.target_node : known.source_node;
  peer_nodes_[key] = node;
  if (node == context_.config.node) return;
  peers_.add(info.migration, node, is_source ? known.target_peer_address : known.source_peer_address,
             known.peer_token);
}

void Migrations::send(const HandoverKey& key, const HandoverInfo& info, const wire::CommitMessage& message) {
  add_peer(key, info);
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
  add_peer(key, info);
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

bool Migrations::sends(wire::MigrationId migration) const {
  const auto* state = driver_.handovers().source(migration);
  return state != nullptr && !migration::is_closed(*state);
}

bool Migrations::may_run_freely(const Job& job) const {
  return driver_.handovers().may_run_freely(job.id(), job.incarnation());
}

bool Migrations::has_promised(wire::MigrationId migration) const {
  const auto* state = driver_.handovers().target(migration);
  return state != nullptr && std::holds_alternative<migration::target::Committed>(state->phase);
}

void Migrations::on_standby_ended(wire::MigrationId migration) {
  const wire::Reason cause(ErrorCode::kAborted, "The instance ended while its agent was not running");
  driver_.on_event(HandoverKey{migration, Role::kTarget},
                   migration::TargetEvent(migration::InstanceDied(cause)));
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
  driver_.ask_again();
}

bool Migrations::is_open(wire::JobId job) const {
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

std::optional<OtherSide> Migrations::other_side(wire::MigrationId migration) const {
  const auto* source = driver_.handovers().source(migration);
  const auto* target = driver_.handovers().target(migration);
  if (source == nullptr && target == nullptr) return std::nullopt;
  const auto plan = wire::decode_plan(source != nullptr ? source->info.plan : target->info.plan);
  if (!plan) return std::nullopt;
  const wire::MigrationPlan& known = *plan;
  if (source != nullptr) return OtherSide{known.target_node, Role::kTarget};
  return OtherSide{known.source_node, Role::kSource};
}

bool Migrations::take_of_peer(const PeerNode& node, const wire::CommitMessage& message) {
  if (node.is_certified) {
    const auto side = other_side(message.migration);
    if (!side || !speaks_for_itself(*side, node.name, message)) return false;
  }
  driver_.on_message(message);
  return true;
}

std::vector<wire::OpenHandover> Migrations::open_handovers() const {
  std::vector<wire::OpenHandover> open;
  for (const auto& [key, job] : driver_.handovers().open())
    open.emplace_back(key.migration, job,
                      key.role == Role::kSource ? wire::Side::kSource : wire::Side::kTarget);
  return open;
}

std::optional<wire::HandoverFacts> Migrations::describe(const wire::DescribeHandover& request) const {
  const auto* source = driver_.handovers().source(request.migration);
  const auto* target = driver_.handovers().target(request.migration);
  const HandoverInfo* info = nullptr;
  if (request.side == wire::Side::kSource && source != nullptr) info = &source->info;
  if (request.side == wire::Side::kTarget && target != nullptr) info = &target->info;
  if (info == nullptr || info->plan.empty()) return std::nullopt;
  wire::HandoverFacts facts;
  facts.job = info->job;
  facts.base = info->base;
  facts.ranks = info->ranks;
  facts.plan = info->plan;
  return facts;
}

void Migrations::release_closed() {
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
