// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/resumes/resume_backoff.h"

#include <algorithm>

namespace ckpt::coordinator {
namespace {

// The minimum time that a job stays parked. In this time the job that displaced it allocates the memory.
constexpr std::int64_t kRestMs = 3'000;
constexpr unsigned kMaxExponent = 6;

}  // namespace

bool ResumeBackoff::is_ready(const Job& job, std::int64_t now_ms, std::int64_t steady_ms) const {
  const auto failed = failures_.find(job.id);
  const bool waits = failed != failures_.end() && steady_ms < failed->second.until_ms;
  return !waits && now_ms - job.parked_ms >= kRestMs;
}

bool ResumeBackoff::note_failure(JobId job, bool is_parked, std::int64_t steady_ms) {
  Failures& failures = failures_[job];
  ++failures.count;
  failures.until_ms = steady_ms + std::int64_t{1000} * (1U << std::min(failures.count, kMaxExponent));
  if (!is_parked || failures.count < kMaxFailures) return false;
  failures_.erase(job);
  return true;
}

bool resumes_by_itself(const Job& job) {
  return job.state == JobState::kParked && job.resumes_itself && !job.operation && !job.unconfirmed;
}

}  // namespace ckpt::coordinator
