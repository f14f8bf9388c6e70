// SPDX-License-Identifier: Apache-2.0
#include "agent/coordinator_link/descriptions.h"

#include <algorithm>

#include "libckpt/protocol/wire/ids.h"

namespace ckpt::agent {

Descriptions::Descriptions(CoordinatorLink& link, const JobTable& jobs, const MoveProtocols& protocols)
    : link_(link), jobs_(jobs), protocols_(protocols) {
  link.subscribe(wire::FrameType::kDescribeJob,
                 [this](std::span<const std::byte> body) { return describe_job(body); });
  link.subscribe(wire::FrameType::kDescribeHandover,
                 [this](std::span<const std::byte> body) { return describe_handover(body); });
}

void Descriptions::introduce(wire::AgentHello& hello) const {
  hello.describes = true;
  for (const MoveProtocol* protocol : protocols_.all()) {
    hello.newest_migration = std::max(hello.newest_migration, protocol->newest());
    for (const wire::OpenHandover& open : protocol->open_handovers()) hello.handovers.push_back(open);
  }
  for (const auto& job : jobs_.all()) hello.newest_job = std::max(hello.newest_job, job->id());
}

Result<void> Descriptions::describe_job(std::span<const std::byte> body) {
  CKPT_TRY(request, wire::decode<wire::DescribeJob>(body));
  const auto job = jobs_.started_as(request.job, request.incarnation);
  if (!job) {
    link_.reply(request.request_id,
                Error(ErrorCode::kNotFound, "Job " + wire::job_text(request.job) +
                                                " does not have the requested instance on this node"));
    return ok();
  }
  wire::JobFacts facts;
  facts.request_id = request.request_id;
  facts.spec = job->record().spec;
  link_.send(facts);
  return ok();
}

Result<wire::HandoverFacts> Descriptions::facts_of(const wire::DescribeHandover& request) const {
  auto facts = protocols_.describe(request);
  if (!facts)
    return Error(ErrorCode::kNotFound,
                 "This node has no plan for migration " + wire::migration_text(request.migration));
  facts->request_id = request.request_id;
  facts->migration = request.migration;
  return *std::move(facts);
}

Result<void> Descriptions::describe_handover(std::span<const std::byte> body) {
  CKPT_TRY(request, wire::decode<wire::DescribeHandover>(body));
  auto facts = facts_of(request);
  if (facts)
    link_.send(*facts);
  else
    link_.reply(request.request_id, std::move(facts).error());
  return ok();
}

}  // namespace ckpt::agent
