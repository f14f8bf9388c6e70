// SPDX-License-Identifier: Apache-2.0
// The metrics of health, parked jobs and images (docs/metrics.md): what an operator must be told of without
// looking. Read from the tables at each scrape.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive the registry.
// Errors: none.
#pragma once

#include "coordinator/fleet/gpu_faults.h"
#include "coordinator/fleet/jobs.h"
#include "coordinator/health/evacuation_table.h"
#include "coordinator/health/policy.h"
#include "coordinator/operations/job_states.h"
#include "libckpt/net/metrics/registry.h"

namespace ckpt::coordinator {

struct HealthMetricsDependencies {
  const NodeTable& nodes;
  JobTable& jobs;
  const GpuFaults& faults;
  const PolicyTable& policy;
  const EvacuationTable& evacuations;
};
// Once.
void observe_health(metrics::Registry& registry, HealthMetricsDependencies deps);

// The newest image of a protected job is older than three of its intervals.
[[nodiscard]] bool is_overdue(const Job& job, std::int64_t now_ms);
// The evacuation left its job, which is still there.
[[nodiscard]] bool is_left_there(const Evacuation& evacuation, const Job& job);

}  // namespace ckpt::coordinator
