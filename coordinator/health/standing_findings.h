// SPDX-License-Identifier: Apache-2.0
// Findings that still count, as of now. A finding is an event; what it forbids lasts: a job that comes to the
// GPU later must not stay there either.
// Threads: one. Ownership: results point into the table that they are from. Errors: none.
#pragma once

#include <cstdint>
#include <vector>

#include "coordinator/fleet/cordons.h"
#include "coordinator/fleet/gpu_faults.h"
#include "coordinator/health/health.h"

namespace ckpt::coordinator {

// A GPU with a finding of its own is suspect for so long, even if it was not cordoned.
inline constexpr std::int64_t kSuspicionMs = 600'000;

// Returns at most one finding for each GPU: the one for which no job may stay there. The one that cordoned it
// last counts for as long as the health policy's cordon stands. Without a cordon, the newest finding within
// kSuspicionMs counts that did not ask for one. Findings that are not decided on are left out.
[[nodiscard]] std::vector<const Finding*> standing_findings(const std::vector<Finding>& all,
                                                            const CordonTable& cordons, std::int64_t now_ms);

// The verdict for the job's instance of now: its own, else that for the GPU.
[[nodiscard]] wire::HealthOutcome outcome_for(const wire::HealthFinding& finding, const Job& job);
[[nodiscard]] const wire::JobVerdict* verdict_of(const wire::HealthFinding& finding, JobId job);

// Where the policy of a node is paused its findings close nothing; a cordon counts all the same.
class FaultsByFindings final : public GpuFaults {
 public:
  FaultsByFindings(const HealthTable& health, const CordonTable& cordons, const PolicyTable& policy)
      : health_(health), cordons_(cordons), policy_(policy) {}
  [[nodiscard]] std::optional<GpuFault> find(const Place& place) const override;

 private:
  const HealthTable& health_;
  const CordonTable& cordons_;
  const PolicyTable& policy_;
};

}  // namespace ckpt::coordinator
