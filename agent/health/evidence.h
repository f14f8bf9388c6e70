// SPDX-License-Identifier: Apache-2.0
// Reports of both channels about a GPU within a window, joined with the jobs that they concern, as
// libckpt/health decides on it.
// Threads: the event loop. Ownership: values. Errors: none.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agent/health/health_record.h"
#include "agent/jobs/job_table.h"
#include "libckpt/health/decide.h"
#include "libckpt/health/history.h"

namespace ckpt::agent {

// SeenEvent::source of a probe's answer.
inline constexpr char kProbeSource[] = "probe";

// The instance whose process that is, or null.
[[nodiscard]] std::shared_ptr<Job> job_of_pid(const JobTable& jobs, std::int32_t pid);

// The instances that run on the GPU now.
[[nodiscard]] std::vector<Bystander> bystanders_of(const JobTable& jobs, const KnownGpu& gpu);

// Running jobs of the GPU, and those that were there when it began, or that an event names, and have ended
// badly since.
[[nodiscard]] std::vector<std::shared_ptr<Job>> jobs_concerned(const JobTable& jobs, const KnownGpu& gpu,
                                                               const std::vector<SeenEvent>& seen,
                                                               const std::vector<Bystander>& bystanders);

struct EvidenceRules {
  const health::XidTable& table;
  const health::History& history;
  std::uint32_t repeats = 0;  // of health::RepeatRule
  std::int64_t now_ms = 0;
};
// Processes are numbered by their place in `jobs`, from 1.
[[nodiscard]] health::Evidence evidence_of(const KnownGpu& gpu, const std::vector<SeenEvent>& seen,
                                           const std::vector<std::shared_ptr<Job>>& jobs,
                                           const EvidenceRules& rules);

}  // namespace ckpt::agent
