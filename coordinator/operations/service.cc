// SPDX-License-Identifier: Apache-2.0
#include "coordinator/operations/service.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>

#include "libckpt/base/program_error.h"

namespace ckpt::coordinator {
namespace {

constexpr std::chrono::seconds kStartAnswer{30};

bool is_to_start(const Job* job) {
  return job != nullptr && job->state == JobState::kStarting && !job->stop_requested;
}

// Returns the terms of the GPU's score, and the ranks beside it on its node.
std::vector<std::string> reasons_for(const GangPlan& plan, const Place& place) {
  std::vector<std::string> reasons;
  const auto chosen = std::ranges::find(plan.candidates, place, &Candidate::place);
  if (chosen != plan.candidates.end()) reasons = chosen->reasons;
  std::vector<std::string> others;
  for (const Place& other : plan.places)
    if (other.node == place.node && other != place) others.push_back(to_text(other));
  if (!others.empty()) reasons.push_back(fmt::format("next to the ranks on {}", fmt::join(others, " and ")));
  return reasons;
}

std::vector<Placing> placings_of(const GangPlan& plan, const std::vector<Displacement>& displaced) {
  std::vector<Placing> placings;
  for (const Place& place : plan.places) {
    std::vector<std::string> reasons = reasons_for(plan, place);
    for (const Displacement& going : displaced) reasons.push_back(to_text(going));
    placings.push_back({place, fmt::format("{}", fmt::join(reasons, ", "))});
  }
  return placings;
}

}  // namespace

Result<RunPlan> Service::plan(const SubmitRequest& request) const {
  if (request.preempt) return deps_.preemptor.plan_for(request);
  RunPlan plan;
  CKPT_TRY(placing, deps_.planner.plan(request));
  plan.placing = std::move(placing);
  return plan;
}

control::Task<Result<Submitted>> Service::submit(SubmitRequest request) {
  Submitted submitted;
  if (request.preempt) {
    CKPT_CO_TRY(displaced, co_await deps_.preemptor.preempt_for(request));
    submitted.displaced = std::move(displaced);
  }
  CKPT_CO_TRY(found, deps_.planner.plan(request));
  if (found.places.empty()) co_return Error(ErrorCode::kRefused, found.reason);
  request.spec.uid = ::getuid();
  request.spec.gid = ::getgid();
  request.spec.gang.one_node = request.gang.one_node;
  CKPT_CO_TRYV(deps_.rendezvous.check(request.spec, found.places));
  const std::vector<Placing> placings = placings_of(found, submitted.displaced);
  CKPT_CO_TRY(job, deps_.admission.create(std::move(request.spec), placings));
  CKPT_CO_TRY(started, co_await start_all(job.id));
  submitted.job = std::move(started);
  co_return submitted;
}

// Starts the ranks in order: the node of the first rank finds the port at which the other ranks connect.
control::Task<Result<WholeJob>> Service::start_all(JobId whole) {
  std::vector<JobId> ids;
  for (const Job* rank : deps_.jobs.ranks_of(whole)) ids.push_back(rank->id);
  for (const JobId id : ids) {
    auto started = co_await start_or_explain(id);
    if (started) continue;
    if (auto stopped = stop(deps_.jobs.ranks_of(whole), 0); !stopped)
      spdlog::error("the ranks of {} were not stopped: {}", job_text(whole), stopped.error().to_string());
    co_return std::move(started).error();
  }
  auto job = find_whole(deps_.jobs, whole);
  if (!job) co_return job_was_removed(whole);
  co_return std::move(*job);
}

void Service::confirm_by_move(JobId whole) {
  std::vector<JobRunner::Event> events;
  for (const Job* rank : deps_.jobs.ranks_of(whole))
    events.push_back({rank->id, lifecycle::Confirmed{"a requested move"}});
  if (events.empty()) return;
  if (auto confirmed = deps_.job_runner.order_all(std::move(events)); !confirmed)
    spdlog::error("the confirmation of job {} was not stored: {}", job_text(whole),
                  confirmed.error().to_string());
}

control::Task<Result<void>> Service::start_or_explain(JobId id) {
  co_await start(id);
  const Job* started = deps_.jobs.find(id);
  if (started == nullptr) co_return Error(ErrorCode::kInternal, "Job " + job_text(id) + " vanished");
  if (started->state == JobState::kFailed && is_program_status(started->exit_code))
    co_return program_error(started->exit_code, started->reason);
  if (started->state == JobState::kFailed)
    co_return Error(ErrorCode::kRefused, "Job " + job_text(id) + " could not be started: " + started->reason);
  co_return ok();
}

control::Task<> Service::start(JobId id) {
  const Job* job = deps_.jobs.find(id);
  if (!is_to_start(job)) co_return;
  const std::string node = job->node();
  auto spec = co_await deps_.rendezvous.complete(job->spec);
  if (!is_to_start(deps_.jobs.find(id))) co_return;
  if (!spec) {  // the next inventory of the node starts the job again
    spdlog::warn("job {} is not started yet: {}", job_text(id), spec.error().to_string());
    co_return;
  }
  wire::StartJob message;
  message.spec = *std::move(spec);
  auto started = co_await deps_.calls.call(node, message, kStartAnswer);
  if (deps_.jobs.find(id) == nullptr) co_return;
  if (started) co_return deps_.job_runner.fact(id, lifecycle::StartAnswered());
  const Error& error = started.error();
  const bool unknown = error.code() == ErrorCode::kUnavailable || error.code() == ErrorCode::kTimedOut;
  spdlog::warn("starting job {}: {}", job_text(id), error.to_string());
  if (!unknown) deps_.job_runner.fact(id, lifecycle::StartAnswered{error});
}

Result<void> Service::stop(const std::vector<Job*>& ranks, std::int64_t grace_ms) {
  std::vector<JobRunner::Event> events;
  events.reserve(ranks.size());
  for (const Job* rank : ranks) events.push_back({rank->id, lifecycle::Stop{grace_ms}});
  return events.empty() ? ok() : deps_.job_runner.order_all(std::move(events));
}

Result<void> Service::forget(const std::vector<Job*>& ranks) {
  std::vector<JobId> ids;
  for (const Job* rank : ranks) ids.push_back(rank->id);
  CKPT_TRYV(deps_.job_runner.forget(ranks));
  for (const JobId id : ids) send_forget(id);
  return ok();
}

void Service::send_forget(JobId id) {
  wire::ForgetJob message;
  message.job = id;
  for (const auto& [name, node] : deps_.nodes.all()) {
    const bool has_it = std::any_of(node.instances.begin(), node.instances.end(),
                                    [&](const wire::JobInstance& instance) { return instance.job == id; });
    if (has_it && node.connected()) deps_.calls.send(name, message);
  }
}

}  // namespace ckpt::coordinator
