// SPDX-License-Identifier: Apache-2.0
#include "coordinator/maintenance/resumes.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "coordinator/images/wait_for_change.h"
#include "libckpt/base/clock.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {
namespace {

using std::chrono::steady_clock;

// The job that another one was parked for gets a moment to take its memory.
constexpr std::int64_t kRestMs = 3'000;
constexpr unsigned kMaxResumeFailures = 5;

}  // namespace

void Resumes::start() {
  control::spawn(deps_.executor, "parked jobs", run());
}

control::Task<> Resumes::run() {
  while (true) {
    begin_next();
    co_await wait_for_change(deps_.jobs);
  }
}

void Resumes::begin_next() {
  if (resuming_ || deps_.overcommit.busy()) return;
  for (const Job& job : deps_.jobs.live()) {
    if (job.operation && job.operation->verb == "resume") return;
  }
  std::vector<ParkedJob> waiting = resting();
  if (waiting.empty()) return;
  auto next = next_to_resume(std::move(waiting), deps_.planner.gpu_views());
  if (!next) return;
  PlanHints claims;
  claims.promised = std::move(next->claims);
  resuming_ = true;
  control::spawn(deps_.executor, "resuming " + job_text(next->id), resume(next->id, std::move(claims)));
}

std::vector<ParkedJob> Resumes::resting() const {
  std::vector<ParkedJob> found;
  for (const Job& job : deps_.jobs.live()) {
    const JobId id = job.id;
    if (job.state != JobState::kParked || !job.resumes_itself || job.operation || job.unconfirmed) continue;
    const auto image = deps_.images.for_order(job, "resume");
    if (!image) continue;
    const auto backoff = backoffs_.find(id);
    const bool waits = backoff != backoffs_.end() && steady_clock::now() < backoff->second.until;
    ParkedJob& entry = found.emplace_back();
    entry.id = id;
    entry.parked_ms = job.parked_ms;
    entry.ready = !waits && wall_clock_ms() - job.parked_ms >= kRestMs;
    entry.request = deps_.planner.request_for(job, *image);
  }
  return found;
}

control::Task<> Resumes::resume(JobId id, PlanHints claims) {
  const auto resumed = co_await deps_.requests.resume(id, std::move(claims));
  resuming_ = false;
  if (resumed)
    backoffs_.erase(id);
  else
    note_failure(id);
}

void Resumes::note_failure(JobId id) {
  Backoff& backoff = backoffs_[id];
  ++backoff.failures;
  backoff.until = steady_clock::now() + std::chrono::seconds(1U << std::min(backoff.failures, 6U));
  const Job* job = deps_.jobs.find(id);
  if (job == nullptr || job->state != JobState::kParked || backoff.failures < kMaxResumeFailures) return;
  backoffs_.erase(id);
  deps_.events.add("job-parked",
                   fmt::format("job {} ({}) could not be resumed {} times: it stays parked until `resume`",
                               job->spec.name, job_text(id), kMaxResumeFailures),
                   {}, id);
  if (auto stays = deps_.job_runner.order(id, lifecycle::StaysParked{}); !stays)
    spdlog::error("that job {} stays parked was not stored: {}", job_text(id), stays.error().to_string());
}

}  // namespace ckpt::coordinator
