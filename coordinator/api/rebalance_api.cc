// SPDX-License-Identifier: Apache-2.0
// The handlers of the calls POST and GET /v1/rebalance (docs/api.md).
#include "coordinator/api/optional_text.h"
#include "coordinator/maintenance/rebalance.h"
#include "coordinator/requests/api_answers.h"
#include "coordinator/requests/body_reader.h"
#include "libckpt/api/rebalance.h"
#include "libckpt/record/document.h"

namespace ckpt::coordinator {
namespace {

constexpr std::int64_t kMaxParallelMoves = 64;

api::PlannedMove planned_move_view(const PackProblem& problem, const PackPlan& plan, std::size_t move) {
  const PackJob& job = problem.jobs[plan.moves[move].job];
  return {.job = job_text(job.id),
          .name = job.name,
          .from = to_text(problem.gpus[job.gpu].place),
          .to = to_text(problem.gpus[plan.moves[move].to].place),
          .needed_bytes = job.bytes,
          .state_bytes = job.state_bytes,
          .reason = why_move(problem, plan, move)};
}

api::RebalanceEffect effect_view(const PackProblem& problem, const PackPlan& plan) {
  api::RebalanceEffect view;
  for (const std::size_t gpu : plan.freed) view.freed.push_back(to_text(problem.gpus[gpu].place));
  view.free_before = plan.free_before;
  view.free_after = plan.free_after;
  view.exhaustive = plan.exhaustive;
  for (const PackJob& job : problem.jobs) {
    if (!job.obstacle.empty())
      view.fixed.push_back({.job = job_text(job.id), .name = job.name, .reason = job.obstacle});
  }
  return view;
}

api::RebalancePlan rebalance_plan_view(const PackProblem& problem, const PackPlan& plan) {
  api::RebalancePlan view;
  for (std::size_t i = 0; i < plan.moves.size(); ++i)
    view.moves.push_back(planned_move_view(problem, plan, i));
  view.effect = effect_view(problem, plan);
  return view;
}

api::Rebalance rebalance_view(const RebalanceRun& run) {
  api::Rebalance view;
  view.state = record::name_of(run.state);
  view.revision = run.revision;
  view.parallel = run.parallel;
  for (std::size_t i = 0; i < run.moves.size(); ++i) {
    api::RebalanceMove& move = view.moves.emplace_back();
    move.planned = planned_move_view(run.problem, run.plan, i);
    move.state = record::name_of(run.moves[i].state);
    if (run.moves[i].migration != 0) move.migration = migration_text(run.moves[i].migration);
    move.error = text_if_any(run.moves[i].error);
  }
  view.effect = effect_view(run.problem, run.plan);
  return view;
}

HttpResponse response_of(unsigned status, const RebalanceRun& run) {
  return to_response(status, record::to_answer(rebalance_view(run)));
}

Error no_run() {
  return {ErrorCode::kNotFound, "No rebalance has run since the coordinator started"};
}

}  // namespace

bool Rebalancer::handles(const HttpRequest& request) const {
  return request.path[1] == "rebalance";
}

control::Task<Result<HttpResponse>> Rebalancer::handle(HttpRequest request) {
  const bool bare = request.path.size() == 2;
  const std::string verb = request.path.size() == 3 ? request.path[2] : "";
  if (bare && is_post(request)) co_return post(request);
  if (verb == "watch" && is_get(request)) co_return co_await watch(std::move(request));
  const bool known = (bare && is_get(request)) || (verb == "stop" && is_post(request));
  if (!known) co_return no_such_call(request);
  if (!run_) co_return no_run();
  if (verb == "stop") stop();
  co_return response_of(200, *run_);
}

Result<HttpResponse> Rebalancer::post(const HttpRequest& request) {
  CKPT_TRY(body, BodyReader::parse(request.body));
  const bool apply = body.boolean("apply").value_or(false);
  const auto parallel =
      static_cast<std::uint32_t>(body.integer("parallel", 1, kMaxParallelMoves).value_or(1));
  CKPT_TRYV(body.finish());
  if (!apply) {
    const PackProblem now = problem();
    return to_response(200, record::to_answer(rebalance_plan_view(now, plan_packing(now))));
  }
  CKPT_TRY(run, start(parallel));
  return response_of(202, *run);
}

control::Task<Result<HttpResponse>> Rebalancer::watch(HttpRequest request) {
  constexpr std::int64_t kMaxRevision = std::int64_t{1} << 60;
  CKPT_CO_TRY(since, query_number(request, "since", 0, kMaxRevision));
  CKPT_CO_TRY(timeout, query_number(request, "timeout_ms", kDefaultWaitMs, kMaxWaitMs));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout);
  while (true) {
    if (!run_) co_return no_run();
    const bool is_new = run_->revision > static_cast<std::uint64_t>(since);
    if (is_new || std::chrono::steady_clock::now() >= deadline) co_return response_of(200, *run_);
    co_await changed_.wait_until(deadline);
  }
}

}  // namespace ckpt::coordinator
