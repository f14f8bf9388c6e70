// SPDX-License-Identifier: Apache-2.0
// Reports of NVML and the kernel log about a GPU within a window, combined with the jobs that they concern.
// libckpt/health decides on this evidence.
// Threads: the event loop. Ownership: plain values. Errors: none.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agent/health/health_record.h"
#include "agent/jobs/job_table.h"
#include "libckpt/health/decide.h"
#include "libckpt/health/history.h"

namespace ckpt::agent {

// The SeenEvent::source of a probe's result.
inline constexpr char kProbeSource[] = "probe";

// Returns the instance to which the process belongs, or null.
[[nodiscard]] std::shared_ptr<Job> job_of_pid(const JobTable& jobs, std::int32_t pid);

// Returns the instances that currently run on the GPU.
[[nodiscard]] std::vector<Bystander> bystanders_of(const JobTable& jobs, const KnownGpu& gpu);

// Returns the running jobs of the GPU. It also returns jobs that have failed since, if they were on the GPU
// at the beginning or an event names them.
[[nodiscard]] std::vector<std::shared_ptr<Job>> jobs_concerned(const JobTable& jobs, const KnownGpu& gpu,
                                                               const std::vector<SeenEvent>& seen,
                                                               const std::vector<Bystander>& bystanders);

struct EvidenceRules {
  const health::XidTable& table;
  const health::History& history;
  std::uint32_t repeats = 0;  // repeat count of health::RepeatRule
  std::int64_t now_ms = 0;
};
// Returns the evidence. Processes are numbered by their position in `jobs`, from 1.
[[nodiscard]] health::Evidence evidence_of(const KnownGpu& gpu, const std::vector<SeenEvent>& seen,
                                           const std::vector<std::shared_ptr<Job>>& jobs,
                                           const EvidenceRules& rules);

}  // namespace ckpt::agent
