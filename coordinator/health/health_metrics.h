// SPDX-License-Identifier: Apache-2.0
// The metrics of health, parked jobs and images (docs/metrics.md), which an operator's alerts need. They are
// read from the tables at each scrape.
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
// Registers the metrics. Call this once.
void observe_health(metrics::Registry& registry, HealthMetricsDependencies deps);

// Returns whether the newest image of a protected job is older than three of its intervals.
[[nodiscard]] bool is_overdue(const Job& job, std::int64_t now_ms);
// Returns whether the evacuation was abandoned and the job is still on the GPU.
[[nodiscard]] bool is_left_there(const Evacuation& evacuation, const Job& job);

}  // namespace ckpt::coordinator
