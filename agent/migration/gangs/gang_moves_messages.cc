// SPDX-License-Identifier: Apache-2.0
// The part of GangMoves between the machines, the coordinator and other agents.
#include <algorithm>

#include "agent/migration/gangs/gang_moves.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::agent {

using gang::Party;
using gang::PartyKey;
using gang::Role;

std::string GangMoves::node_of(const gang::GangPlan& plan, const Party& party) const {
  if (party.role == Role::kBystander) {
    const gang::StayingRank* staying = gang::find_staying(plan, party.rank);
    return staying == nullptr ? "" : staying->node;
  }
  const gang::MovedRank* moved = gang::find_moved(plan, party.rank);
  if (moved == nullptr) return "";
  const auto own = wire::decode_plan(moved->plan);
  if (!own) return "";
  return party.role == Role::kSource ? own->source_node : own->target_node;
}

void GangMoves::send(const PartyKey& key, const gang::GangInfo& info, const gang::Send& what) {
  wire::CommitMessage message(info, key.party, what.to, what.body);
  if (what.to == Party()) {
    send_report_before(key, what.body);
    link_.send(message);
    return;
  }
  const Member* sender = member(key, info);
  const std::string node = sender == nullptr ? "" : node_of(*sender->plan, what.to);
  if (node == context_.config.node) return driver_.on_own_message(std::move(message));
  // Messages are sent through the coordinator and directly, because one of the two connections may be
  // interrupted.
  if (!node.empty()) peers_.send(node, message);
  link_.send(message);
}

bool GangMoves::take_of_peer(const PeerNode& node, const wire::CommitMessage& message) {
  const auto plan = plans_.find(message.migration);
  if (plan == plans_.end() || !plan->second || node_of(*plan->second, message.from) != node.name)
    return false;
  driver_.on_message(message);
  return true;
}

// Keeps connections to the nodes with which a party decides. All parties connect to the lead, and a source
// connects to its target. A source frees its memory only after a bystander is GONE, so a bystander also
// connects to the sources.
void GangMoves::add_peers(const PartyKey& key, const gang::GangPlan& plan) {
  for (const gang::MovedRank& moved : plan.moved) {
    const auto own = wire::decode_plan(moved.plan);
    if (!own) continue;
    const wire::MigrationPlan& rank = *own;
    const auto keep = [&](const std::string& node, const std::string& address) {
      if (node != context_.config.node) peers_.add(key.migration, node, address, rank.peer_token);
    };
    const bool is_lead = moved.rank == plan.moved.front().rank;
    const bool is_its_source = key.party == Party(Role::kSource, moved.rank);
    if (is_lead || is_its_source) keep(rank.target_node, rank.target_peer_address);
    if (key.party.role == Role::kBystander) keep(rank.source_node, rank.source_peer_address);
  }
}

void GangMoves::ask_for_info(const wire::CommitMessage& message) {
  wire::CommitMessage question(message.migration, message.job, message.base, message.to, Party(),
                               gang::Query{});
  question.asks_for_info = true;
  link_.send(question);
}

void GangMoves::has_stated_all(const PartyKey& key, const gang::GangInfo& info) {
  wire::CommitMessage answer(info, key.party, Party(), gang::Query{});
  answer.info = info;
  answer.info->plan.clear();  // removed, because the plan was already described
  link_.send(answer);
}

std::vector<wire::OpenHandover> GangMoves::open_handovers() const {
  std::vector<wire::OpenHandover> open;
  for (const auto& [key, state] : driver_.parties().all()) {
    const Member* known = find(key);
    if (known == nullptr || gang::is_closed(state)) continue;
    const auto side = key.party.role == Role::kTarget ? wire::Side::kTarget : wire::Side::kSource;
    open.emplace_back(key.migration, known->job, side);
    open.back().of_ranks = true;
  }
  return open;
}

wire::MigrationId GangMoves::newest() const {
  wire::MigrationId newest = 0;
  for (const auto& [id, plan] : plans_) {
    if (!plan) continue;
    for (const gang::MovedRank& moved : plan->moved) newest = std::max(newest, moved.migration);
  }
  for (const auto& [key, state] : driver_.parties().all()) newest = std::max(newest, key.migration);
  return newest;
}

std::optional<wire::HandoverFacts> GangMoves::describe(const wire::DescribeHandover& request) const {
  for (const auto& [key, state] : driver_.parties().all()) {
    const gang::GangInfo& info = gang::info_of(state);
    if (key.migration != request.migration || info.plan.empty()) continue;
    wire::HandoverFacts facts;
    facts.move = wire::encode(info);
    return facts;
  }
  return std::nullopt;
}

// Sends the measurements before the outcome, because the coordinator creates its report when it receives the
// outcome.
void GangMoves::send_report_before(const PartyKey& key, const gang::Body& body) {
  const Member* known = find(key);
  if (known == nullptr) return;
  const bool is_source_outcome =
      std::holds_alternative<gang::Released>(body) || std::holds_alternative<gang::Resumed>(body);
  if (known->source && is_source_outcome) send_source_report(*known);
  if (known->target && std::holds_alternative<gang::Ran>(body)) {
    if (known->target->report()) send_target_report(*known);
  }
}

void GangMoves::send_source_report(const Member& member) {
  if (!member.source->report()) return;
  wire::SourceReport report = *member.source->report();
  report.stop_ordered_ns = member.stop->stop_requested_at();
  context_.reports.send(report);
}

void GangMoves::send_target_report(const Member& member) {
  wire::TargetReport report = *member.target->report();
  report.groups_ns = report.groups_made_ns == 0
                         ? member.groups_took
                         : std::max<Nanos>(0, report.groups_made_ns - report.verified_ns);
  context_.reports.send(report);
}

void GangMoves::restate() {
  for (const auto& [key, known] : members_) {
    if (known.source && known.source->report() && known.source->report()->last_ack_ns != 0)
      send_source_report(known);
    if (known.target) {
      if (const auto& report = known.target->report(); report && report->resumed_ns != 0)
        send_target_report(known);
    }
  }
  driver_.ask_again();
}

}  // namespace ckpt::agent
