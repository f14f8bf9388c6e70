// SPDX-License-Identifier: Apache-2.0
#include "coordinator/health/faults_by_findings.h"

#include "libckpt/base/clock.h"

namespace ckpt::coordinator {

std::optional<GpuFault> FaultsByFindings::find(const Place& place) const {
  GpuHealth gpu;
  gpu.newest_suspicion = health_.newest_suspicion(place);
  if (const Cordon* cordon = cordons_.find(Scope(place.node, place.gpu), CordonOwner::kHealth))
    gpu.cordon = {cordon->reason, cordon->since_ms};
  gpu.forgiven_ms = policy_.forgiven_ms(place);
  gpu.is_policy_paused = policy_.is_paused(place.node);
  return fault_of(gpu, wall_clock_ms());
}

}  // namespace ckpt::coordinator
