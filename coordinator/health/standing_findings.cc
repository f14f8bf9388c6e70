// SPDX-License-Identifier: Apache-2.0
#include "coordinator/health/standing_findings.h"

#include <algorithm>
#include <map>
#include <utility>

#include "libckpt/base/clock.h"

namespace ckpt::coordinator {
namespace {

bool concerns(wire::HealthOutcome outcome) {
  return outcome == wire::HealthOutcome::kLive || outcome == wire::HealthOutcome::kRestore;
}

struct Newest {
  const Finding* cordoning = nullptr;
  const Finding* other = nullptr;
};

}  // namespace

const wire::JobVerdict* verdict_of(const wire::HealthFinding& finding, JobId job) {
  const auto at = std::find_if(finding.jobs.begin(), finding.jobs.end(),
                               [job](const wire::JobVerdict& verdict) { return verdict.job == job; });
  return at == finding.jobs.end() ? nullptr : &*at;
}

wire::HealthOutcome outcome_for(const wire::HealthFinding& finding, const Job& job) {
  const wire::JobVerdict* verdict = verdict_of(finding, job.id);
  const bool is_named = verdict != nullptr && (verdict->incarnation == job.incarnation ||
                                               verdict->incarnation == job.segments.back().incarnation);
  return is_named ? verdict->outcome : finding.outcome;
}

std::vector<const Finding*> standing_findings(const std::vector<Finding>& all, const CordonTable& cordons,
                                              std::int64_t now_ms) {
  std::map<std::pair<std::string, std::uint32_t>, Newest> newest;
  for (auto at = all.rbegin(); at != all.rend(); ++at) {
    if (!at->acted || at->paused) continue;
    const bool is_recent = at->reported.time_ms > now_ms - kSuspicionMs;
    if (!at->reported.cordon && !(is_recent && concerns(at->reported.outcome))) continue;
    Newest& of_gpu = newest[{at->node, at->reported.gpu}];
    const Finding*& counts = at->reported.cordon ? of_gpu.cordoning : of_gpu.other;
    if (counts != nullptr) continue;
    const bool stands = !at->reported.cordon ||
                        cordons.find(Scope(at->node, at->reported.gpu), CordonOwner::kHealth) != nullptr;
    if (stands) counts = &*at;
  }
  std::vector<const Finding*> standing;
  for (const auto& [gpu, found] : newest) {
    if (found.cordoning != nullptr && concerns(found.cordoning->reported.outcome))
      standing.push_back(found.cordoning);
    else if (found.other != nullptr)
      standing.push_back(found.other);
  }
  return standing;
}

std::optional<GpuFault> FaultsByFindings::find(const Place& place) const {
  const Cordon* cordon = cordons_.find(Scope(place.node, place.gpu), CordonOwner::kHealth);
  const Finding* finding = health_.newest_suspicion(place);
  const std::int64_t now = wall_clock_ms();
  const bool is_recent = finding != nullptr && finding->reported.time_ms > now - kSuspicionMs &&
                         finding->reported.time_ms > policy_.forgiven_ms(place) &&
                         !policy_.is_paused(place.node);
  if (cordon == nullptr && !is_recent) return std::nullopt;
  GpuFault fault;
  fault.reason = finding != nullptr ? finding->reported.reason : cordon->reason;
  fault.time_ms = finding != nullptr ? finding->reported.time_ms : cordon->since_ms;
  fault.cordoned = cordon != nullptr;
  fault.forbids_reading = finding != nullptr && finding->reported.outcome == wire::HealthOutcome::kRestore;
  if (is_recent) fault.closed_until_ms = finding->reported.time_ms + kSuspicionMs;
  fault.forbids_staying = is_recent && !finding->reported.cordon && concerns(finding->reported.outcome);
  return fault;
}

}  // namespace ckpt::coordinator
