// SPDX-License-Identifier: Apache-2.0
#include "coordinator/maintenance/resumes.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <chrono>

#include "coordinator/images/wait_for_change.h"
#include "libckpt/base/clock.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {
namespace {

std::int64_t steady_ms() {
  using std::chrono::milliseconds;
  return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

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
  std::vector<ParkedJob> waiting = parked();
  if (waiting.empty()) return;
  auto next = next_to_resume(std::move(waiting), deps_.planner.gpu_views());
  if (!next) return;
  PlanHints claims;
  claims.promised = std::move(next->claims);
  resuming_ = true;
  control::spawn(deps_.executor, "resuming " + job_text(next->id), resume(next->id, std::move(claims)));
}

std::vector<ParkedJob> Resumes::parked() const {
  std::vector<ParkedJob> found;
  for (const Job& job : deps_.jobs.live()) {
    if (!resumes_by_itself(job)) continue;
    const auto image = deps_.images.for_order(job, "resume");
    if (!image) continue;
    ParkedJob& entry = found.emplace_back();
    entry.id = job.id;
    entry.parked_ms = job.parked_ms;
    entry.ready = backoff_.is_ready(job, wall_clock_ms(), steady_ms());
    entry.request = deps_.planner.request_for(job, *image);
  }
  return found;
}

control::Task<> Resumes::resume(JobId id, PlanHints claims) {
  const auto resumed = co_await deps_.requests.resume(id, std::move(claims));
  resuming_ = false;
  if (resumed)
    backoff_.note_success(id);
  else
    note_failure(id);
}

void Resumes::note_failure(JobId id) {
  const Job* job = deps_.jobs.find(id);
  const bool is_parked = job != nullptr && job->state == JobState::kParked;
  if (!backoff_.note_failure(id, is_parked, steady_ms())) return;
  deps_.events.add(
      "job-parked",
      fmt::format("resuming job {} ({}) has failed {} times: it stays parked until `gpumigrate resume`",
                  job->spec.name, job_text(id), ResumeBackoff::kMaxFailures),
      {}, id);
  if (auto stays = deps_.job_runner.order(id, lifecycle::StaysParked{}); !stays)
    spdlog::error("the decision to leave job {} parked was not stored: {}", job_text(id),
                  stays.error().to_string());
}

}  // namespace ckpt::coordinator
