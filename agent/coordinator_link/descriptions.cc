// SPDX-License-Identifier: Apache-2.0
#include "agent/coordinator_link/descriptions.h"

#include <algorithm>

#include "libckpt/protocol/wire/ids.h"

namespace ckpt::agent {

Descriptions::Descriptions(CoordinatorLink& link, const JobTable& jobs, const HandoverDriver& driver,
                           const GangMoves& gang_moves)
    : link_(link), jobs_(jobs), driver_(driver), gang_moves_(gang_moves) {
  link.take(wire::FrameType::kDescribeJob,
            [this](std::span<const std::byte> body) { return describe_job(body); });
  link.take(wire::FrameType::kDescribeHandover,
            [this](std::span<const std::byte> body) { return describe_handover(body); });
}

void Descriptions::introduce(wire::AgentHello& hello) const {
  hello.describes = true;
  const migration::AgentHandovers& handovers = driver_.handovers();
  hello.newest_migration = std::max(handovers.newest(), gang_moves_.newest());
  for (const auto& [key, job] : handovers.open())
    hello.handovers.emplace_back(key.migration, job,
                                 key.role == wire::Role::kSource ? wire::Side::kSource : wire::Side::kTarget);
  for (const wire::OpenHandover& open : gang_moves_.open_handovers()) hello.handovers.push_back(open);
  for (const auto& job : jobs_.all()) hello.newest_job = std::max(hello.newest_job, job->id());
}

Result<void> Descriptions::describe_job(std::span<const std::byte> body) {
  CKPT_TRY(request, wire::decode<wire::DescribeJob>(body));
  const auto job = jobs_.started_as(request.job, request.incarnation);
  if (!job) {
    link_.reply(request.request_id, Error(ErrorCode::kNotFound, "Job " + wire::job_text(request.job) +
                                                                    " has no such instance on this node"));
    return ok();
  }
  wire::JobFacts facts;
  facts.request_id = request.request_id;
  facts.spec = job->record().spec;
  link_.tell(facts);
  return ok();
}

const migration::HandoverInfo* Descriptions::find_handover(const wire::DescribeHandover& request) const {
  const migration::AgentHandovers& handovers = driver_.handovers();
  if (request.side == wire::Side::kSource) {
    const auto* state = handovers.source(request.migration);
    return state == nullptr ? nullptr : &state->info;
  }
  const auto* state = handovers.target(request.migration);
  return state == nullptr ? nullptr : &state->info;
}

Result<wire::HandoverFacts> Descriptions::facts_of(const wire::DescribeHandover& request) const {
  const Error unknown(ErrorCode::kNotFound,
                      "This node has no plan of migration " + wire::migration_text(request.migration));
  wire::HandoverFacts facts;
  facts.request_id = request.request_id;
  facts.migration = request.migration;
  if (request.of_ranks) {
    const gang::GangInfo* move = gang_moves_.description_of(request.migration);
    if (move == nullptr) return unknown;
    facts.move = wire::encode(*move);
    return facts;
  }
  const migration::HandoverInfo* info = find_handover(request);
  if (info == nullptr || info->plan.empty()) return unknown;
  facts.job = info->job;
  facts.base = info->base;
  facts.ranks = info->ranks;
  facts.plan = info->plan;
  return facts;
}

Result<void> Descriptions::describe_handover(std::span<const std::byte> body) {
  CKPT_TRY(request, wire::decode<wire::DescribeHandover>(body));
  auto facts = facts_of(request);
  if (facts)
    link_.tell(*facts);
  else
    link_.reply(request.request_id, std::move(facts).error());
  return ok();
}

}  // namespace ckpt::agent
