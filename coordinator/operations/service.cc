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
  if (!found.to) co_return Error(ErrorCode::kRefused, found.reason);
  const Candidate& best = found.candidates.front();
  std::vector<std::string> reasons = best.reasons;
  for (const Displacement& displaced : submitted.displaced) reasons.push_back(to_text(displaced));
  wire::RankSpec rank;
  rank.gpu_index = best.place.gpu;
  request.spec.ranks = {rank};
  request.spec.uid = ::getuid();
  request.spec.gid = ::getgid();
  CKPT_CO_TRY(job, deps_.admission.create(std::move(request.spec), best.place,
                                          fmt::format("{}", fmt::join(reasons, ", "))));
  CKPT_CO_TRY(started, co_await start_or_explain(job->id));
  submitted.job = started;
  co_return submitted;
}

control::Task<Result<Submitted>> Service::submit_gang(SubmitRequest request) {
  if (request.preempt)
    co_return Error(ErrorCode::kNotSupported, "--preempt is not supported for a job of several ranks yet");
  CKPT_CO_TRY(found, deps_.planner.plan_gang(request));
  if (found.places.empty()) co_return Error(ErrorCode::kRefused, found.reason);
  request.spec.uid = ::getuid();
  request.spec.gid = ::getgid();
  CKPT_CO_TRYV(deps_.rendezvous.check(request.spec, found.places));
  request.spec.gang.one_node = request.gang.one_node;
  const std::string placed =
      "the nearest GPUs of each node that can take its ranks: " + shares_text(found.places);
  CKPT_CO_TRY(ranks, deps_.admission.create_gang(std::move(request.spec), found.places, placed));
  std::vector<JobId> ids;
  for (const Job* rank : ranks) ids.push_back(rank->id);
  // The node of the first rank finds the port at which the other ranks connect.
  for (const JobId id : ids) {
    auto started = co_await start_or_explain(id);
    if (started) continue;
    end_ranks(ids);
    co_return std::move(started).error();
  }
  Submitted submitted;
  submitted.job = deps_.jobs.find(ids.front());
  if (submitted.job == nullptr) co_return Error(ErrorCode::kInternal, "A rank of the job no longer exists");
  co_return submitted;
}

// Stops the ranks of a gang that cannot start as a whole.
void Service::end_ranks(const std::vector<JobId>& ids) {
  std::vector<Job*> ranks;
  for (const JobId id : ids)
    if (Job* rank = deps_.jobs.find(id)) ranks.push_back(rank);
  if (auto stopped = stop_all(ranks, 0); !stopped)
    spdlog::error("the ranks of {} were not stopped: {}", job_text(ids.front()), stopped.error().to_string());
}

void Service::confirm_by_move(JobId id) {
  auto confirmed = deps_.job_runner.order(id, lifecycle::Confirmed{"a requested move"});
  if (!confirmed)
    spdlog::error("the confirmation of job {} was not stored: {}", job_text(id),
                  confirmed.error().to_string());
}

control::Task<Result<Job*>> Service::start_or_explain(JobId id) {
  co_await start(id);
  Job* started = deps_.jobs.find(id);
  if (started == nullptr) co_return Error(ErrorCode::kInternal, "Job " + job_text(id) + " vanished");
  if (started->state == JobState::kFailed && is_program_status(started->exit_code))
    co_return program_error(started->exit_code, started->reason);
  if (started->state == JobState::kFailed)
    co_return Error(ErrorCode::kRefused, "Job " + job_text(id) + " could not be started: " + started->reason);
  co_return started;
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

Result<void> Service::stop(const Job& job, std::int64_t grace_ms) {
  return deps_.job_runner.order(job.id, lifecycle::Stop{grace_ms});
}

Result<void> Service::stop_all(const std::vector<Job*>& ranks, std::int64_t grace_ms) {
  std::vector<JobRunner::Event> events;
  events.reserve(ranks.size());
  for (const Job* rank : ranks) events.push_back({rank->id, lifecycle::Stop{grace_ms}});
  return events.empty() ? ok() : deps_.job_runner.order_all(std::move(events));
}

control::Task<> Service::wait_for_end(JobId id, Deadline deadline) {
  while (true) {
    const Job* job = deps_.jobs.find(id);
    if (job == nullptr || is_ended(job->state) || std::chrono::steady_clock::now() >= deadline) co_return;
    co_await deps_.jobs.changed().wait_until(deadline);
  }
}

Result<void> Service::forget(const Job& job) {
  const JobId id = job.id;
  CKPT_TRYV(deps_.job_runner.forget(job));
  wire::ForgetJob message;
  message.job = id;
  for (const auto& [name, node] : deps_.nodes.all()) {
    const bool has_it = std::any_of(node.instances.begin(), node.instances.end(),
                                    [&](const wire::JobInstance& instance) { return instance.job == id; });
    if (has_it && node.connected()) deps_.calls.send(name, message);
  }
  return ok();
}

}  // namespace ckpt::coordinator
