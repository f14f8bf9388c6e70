// SPDX-License-Identifier: Apache-2.0
#include "coordinator/health/faults_by_findings.h"

#include "libckpt/base/clock.h"

namespace ckpt::coordinator {

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
