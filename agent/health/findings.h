// SPDX-License-Identifier: Apache-2.0
// Converts a decision into the form that the coordinator receives.
// Threads: any.
#pragma once

#include <memory>
#include <vector>

#include "agent/health/health_record.h"
#include "agent/jobs/job.h"
#include "libckpt/health/decide.h"

namespace ckpt::agent {

// Returns a finding without number and time. `decision.processes` correspond to `jobs`, in that order.
[[nodiscard]] wire::HealthFinding finding_of(const KnownGpu& gpu, const std::vector<SeenEvent>& seen,
                                             const std::vector<std::shared_ptr<Job>>& jobs,
                                             const health::Decision& decision);

// Returns the findings with numbers up to `max_number`, split into reports that fit into their frames.
[[nodiscard]] std::vector<wire::HealthReport> reports_of(const std::vector<wire::HealthFinding>& findings,
                                                         std::uint64_t max_number);

// Removes the oldest finding that requests no action. If every finding requests an action, the function
// removes the oldest finding.
void drop_least(std::vector<wire::HealthFinding>& findings);

}  // namespace ckpt::agent
