// SPDX-License-Identifier: Apache-2.0
#include "coordinator/api/maintenance_views.h"

#include <algorithm>

#include "coordinator/api/node_views.h"
#include "coordinator/api/optional_text.h"
#include "coordinator/api/plan_views.h"

namespace ckpt::coordinator {
namespace {

std::optional<std::string> target_of(const DrainJob& job) {
  return job.to ? std::optional(to_text(*job.to)) : std::nullopt;
}

// Returns the obstacles that keep the job from moving. The list is empty for a job that is not stuck.
std::vector<std::string> obstacles_of(const DrainJob& job) {
  const bool is_stuck = job.state == DrainJobState::kWaiting || job.state == DrainJobState::kBlocked;
  return is_stuck ? job.obstacles : std::vector<std::string>();
}

api::DrainJob drain_job_view(const DrainJob& job) {
  api::DrainJob view;
  view.job = job_text(job.job);
  view.name = job.name;
  view.state = to_string(job.state);
  view.priority = job.priority;
  view.state_bytes = job.state_bytes;
  view.from = to_text(job.from);
  view.to = target_of(job);
  if (job.migration != 0) view.migration = migration_text(job.migration);
  view.attempts = job.attempts;
  view.downtime_ms = job.downtime_ms;
  view.reason = text_if_any(job.reason);
  view.obstacles = obstacles_of(job);
  return view;
}

api::DrainPlanJob prospect_view(const Drains::Prospect& prospect) {
  const DrainJob& job = prospect.job;
  api::DrainPlanJob view;
  view.job = job_text(job.job);
  view.name = job.name;
  view.priority = job.priority;
  view.state_bytes = job.state_bytes;
  view.from = to_text(job.from);
  view.to = target_of(job);
  view.reason = text_if_any(job.reason);
  view.obstacles = obstacles_of(job);
  view.possible = job.to.has_value();
  view.passing = prospect.passing;
  view.warning = text_if_any(prospect.warning);
  view.expected_pause_ms = pause_ms_if_any(prospect.pause);
  view.expected_pause_from = pause_from_if_any(prospect.pause);
  return view;
}

}  // namespace

api::Drain drain_view(const Drain& drain) {
  api::Drain view;
  view.id = drain_text(drain.id);
  view.revision = drain.revision;
  view.place = to_text(drain.scope);
  view.open = drain.open();
  view.parallel = drain.parallel;
  view.fallback = to_string(drain.fallback);
  view.reason = text_if_any(drain.reason);
  view.started = time_text(drain.started_ms);
  view.deadline = time_text(drain.deadline_ms);
  if (drain.cancelled) view.cancelled = drain.cancel_reason;
  if (!drain.open()) {
    view.ended = time_text(drain.ended_ms);
    view.result = std::string(to_string(drain.result));
    view.exit_code = exit_code_of(drain);
  }
  for (const DrainJob& job : drain.jobs) {
    if (is_gone(job.state)) ++view.jobs_gone;
    view.jobs.push_back(drain_job_view(job));
  }
  return view;
}

api::DrainPlan drain_plan_view(const DrainRequest& request, const std::vector<Drains::Prospect>& prospects) {
  api::DrainPlan view;
  view.place = to_text(request.scope);
  view.parallel = request.parallel;
  view.jobs.reserve(prospects.size());
  for (const Drains::Prospect& prospect : prospects) view.jobs.push_back(prospect_view(prospect));
  view.possible = std::all_of(view.jobs.begin(), view.jobs.end(),
                              [](const api::DrainPlanJob& job) { return job.possible; });
  return view;
}

api::ForgivenGpu forgiven_view(const Place& place, const GpuFault& fault) {
  return {.place = to_text(place), .reason = text_if_any(fault.reason)};
}

api::SuspectGpu suspect_view(const Place& place, const GpuFault& fault) {
  return {.fault = fault_view(fault), .place = to_text(place)};
}

}  // namespace ckpt::coordinator
