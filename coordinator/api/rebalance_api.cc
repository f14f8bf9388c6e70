// SPDX-License-Identifier: Apache-2.0
// POST and GET /v1/rebalance (docs/api.md).
#include "coordinator/maintenance/rebalance.h"
#include "coordinator/requests/api_answers.h"
#include "coordinator/requests/body_reader.h"

namespace ckpt::coordinator {
namespace {

constexpr std::int64_t kMaxParallelMoves = 64;

const char* text_of(MoveState state) {
  switch (state) {
    case MoveState::kWaiting:
      return "waiting";
    case MoveState::kMoving:
      return "moving";
    case MoveState::kDone:
      return "done";
    case MoveState::kFailed:
      return "failed";
    case MoveState::kLeft:
      return "left";
  }
  return "unknown";
}

const char* text_of(RunState state) {
  switch (state) {
    case RunState::kRunning:
      return "running";
    case RunState::kDone:
      return "done";
    case RunState::kFailed:
      return "failed";
    case RunState::kStopped:
      return "stopped";
  }
  return "unknown";
}

json rebalance_plan_json(const PackProblem& problem, const PackPlan& plan) {
  json moves = json::array();
  for (std::size_t i = 0; i < plan.moves.size(); ++i) {
    const PackJob& job = problem.jobs[plan.moves[i].job];
    moves.push_back({{"job", job_text(job.id)},
                     {"name", job.name},
                     {"from", to_text(problem.gpus[job.gpu].place)},
                     {"to", to_text(problem.gpus[plan.moves[i].to].place)},
                     {"needed_bytes", job.bytes},
                     {"state_bytes", job.state_bytes},
                     {"reason", why_move(problem, plan, i)}});
  }
  json freed = json::array();
  for (const std::size_t gpu : plan.freed) freed.push_back(to_text(problem.gpus[gpu].place));
  json fixed = json::array();
  for (const PackJob& job : problem.jobs) {
    if (!job.obstacle.empty())
      fixed.push_back({{"job", job_text(job.id)}, {"name", job.name}, {"reason", job.obstacle}});
  }
  return {{"moves", moves},
          {"freed", freed},
          {"free_before", plan.free_before},
          {"free_after", plan.free_after},
          {"exhaustive", plan.exhaustive},
          {"fixed", fixed}};
}

json run_json(const RebalanceRun& run) {
  json out = {{"state", text_of(run.state)}, {"revision", run.revision}, {"parallel", run.parallel}};
  out.update(rebalance_plan_json(run.problem, run.plan));
  for (std::size_t i = 0; i < run.moves.size(); ++i) {
    const RebalanceMove& move = run.moves[i];
    out["moves"][i]["state"] = text_of(move.state);
    out["moves"][i]["migration"] = move.migration == 0 ? json() : json(migration_text(move.migration));
    out["moves"][i]["error"] = move.error.empty() ? json() : json(move.error);
  }
  return out;
}

Error no_run() {
  return {ErrorCode::kNotFound, "There was no rebalance since the coordinator started"};
}

}  // namespace

bool Rebalancer::takes(const HttpRequest& request) const {
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
  co_return to_response(200, run_json(*run_));
}

Result<HttpResponse> Rebalancer::post(const HttpRequest& request) {
  CKPT_TRY(body, BodyReader::parse(request.body));
  const bool apply = body.boolean("apply").value_or(false);
  const auto parallel =
      static_cast<std::uint32_t>(body.integer("parallel", 1, kMaxParallelMoves).value_or(1));
  CKPT_TRYV(body.finish());
  if (!apply) {
    const PackProblem now = problem();
    json out = {{"dry_run", true}};
    out.update(rebalance_plan_json(now, plan_packing(now)));
    return to_response(200, out);
  }
  CKPT_TRY(run, start(parallel));
  return to_response(202, run_json(*run));
}

control::Task<Result<HttpResponse>> Rebalancer::watch(HttpRequest request) {
  constexpr std::int64_t kMaxRevision = std::int64_t{1} << 60;
  CKPT_CO_TRY(since, query_number(request, "since", 0, kMaxRevision));
  CKPT_CO_TRY(timeout, query_number(request, "timeout_ms", kDefaultWaitMs, kMaxWaitMs));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout);
  while (true) {
    if (!run_) co_return no_run();
    const bool is_new = run_->revision > static_cast<std::uint64_t>(since);
    if (is_new || std::chrono::steady_clock::now() >= deadline) co_return to_response(200, run_json(*run_));
    co_await changed_.wait_until(deadline);
  }
}

}  // namespace ckpt::coordinator
