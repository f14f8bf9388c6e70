// SPDX-License-Identifier: Apache-2.0
#include "coordinator/gangs/moves/job_moves.h"

#include <algorithm>

namespace ckpt::coordinator {
namespace {

// Returns true if the gang commit moves the rank, with the other ranks of its job.
bool is_common(const Job& rank) {
  return rank.spec.gang.id != 0;
}

// Refuses a request that makes sense only for several ranks.
Result<void> check_of_one_rank(const MigrateRequest& request) {
  if (!request.ranks.empty())
    return Error(ErrorCode::kInvalidArgument,
                 "The job has one rank: --rank is only for jobs of several ranks");
  if (request.communicators)
    return Error(ErrorCode::kInvalidArgument,
                 "The job has one rank: --communicators is only for jobs of several ranks");
  return ok();
}

JobMovePlan plan_of(MigratePlan found) {
  JobMovePlan plan;
  plan.moved.push_back(0);
  if (found.to) plan.places.push_back(*std::move(found.to));
  plan.reason = std::move(found.reason);
  plan.passing = found.passing;
  plan.no_gpu = found.no_gpu;
  plan.candidates = std::move(found.candidates);
  plan.warnings = std::move(found.warnings);
  return plan;
}

}  // namespace

bool JobMoves::is_preparing(const Job& rank) const {
  return is_common(rank) && deps_.gang_moves.is_beginning(rank.whole());
}

// Returns an empty text for a rank of a gang, because the plan of the gang's move states its obstacles.
std::string JobMoves::why_not_movable(const Job& rank) const {
  return is_common(rank) ? std::string() : deps_.states.why_not_movable(rank);
}

std::string JobMoves::why_not_movable(const WholeJob& job) const {
  const Job& first = *job.ranks.front();
  return first.id == job.id ? deps_.states.why_not_movable(first) : deps_.gang_moves.why_not_movable(job);
}

std::vector<std::uint32_t> JobMoves::numbers_of(const std::vector<JobId>& ranks) const {
  std::vector<std::uint32_t> numbers;
  for (const JobId id : ranks) numbers.push_back(rank_of(id).rank_number());
  return numbers;
}

Result<JobMovePlan> JobMoves::plan(const std::vector<JobId>& ranks, const PlanHints& hints) const {
  const Job& job = rank_of(ranks.front());
  if (is_common(job)) return plan_together(ranks, hints);
  CKPT_TRY(found, deps_.planner.plan(job, "auto", hints));
  JobMovePlan plan = plan_of(std::move(found));
  if (!plan.is_possible()) plan.obstacle = deps_.states.why_not_movable(job);
  return plan;
}

Result<JobMovePlan> JobMoves::plan_together(const std::vector<JobId>& ranks, const PlanHints& hints) const {
  MigrateRequest request;
  request.ranks = numbers_of(ranks);
  CKPT_TRY(plan, deps_.gang_moves.plan(rank_of(ranks.front()).whole(), request, hints));
  const JobMovePlan found = plan;
  plan.moved = request.ranks;  // the order of `ranks`, which can differ from the order of the plan
  plan.places.clear();
  if (!found.is_possible()) return plan;
  for (const std::uint32_t number : plan.moved) {
    const auto at = std::find(found.moved.begin(), found.moved.end(), number);
    if (at == found.moved.end())
      return Error(ErrorCode::kInternal, "Rank " + std::to_string(number) + " is not in the plan");
    plan.places.push_back(found.places[static_cast<std::size_t>(at - found.moved.begin())]);
  }
  return plan;
}

Result<const Migration*> JobMoves::begin(const std::vector<JobId>& ranks, MigrateRequest request,
                                         const PlanHints& hints, const JobMovePlan& plan,
                                         std::function<void(const Error&)> failed) {
  const Job& job = rank_of(ranks.front());
  if (is_common(job)) {
    request.ranks = numbers_of(ranks);
    deps_.gang_moves.begin_soon(job.whole(), std::move(request), hints.closed, plan, std::move(failed));
    return nullptr;
  }
  MigratePlan single;
  if (plan.is_possible()) single.to = plan.places.front();
  single.reason = plan.reason;
  CKPT_TRY(begun, deps_.moves.begin(job, request, single));
  return begun;
}

std::optional<ExpectedPause> JobMoves::pause_of(const Job& rank, const Place& to) const {
  return expected_pause(rank, deps_.nodes, to.node == rank.node());
}

std::optional<ExpectedPause> JobMoves::pause_of(const WholeJob& job, const JobMovePlan& plan) const {
  std::optional<ExpectedPause> longest;
  for (std::size_t at = 0; at < plan.places.size(); ++at) {
    const auto rank = find_rank(job, plan.moved[at]);
    if (!rank) return std::nullopt;
    const auto pause = pause_of(**rank, plan.places[at]);
    if (!pause) return std::nullopt;
    if (!longest || pause->ms > longest->ms) longest = pause;
  }
  return longest;
}

control::Task<Result<JobMovePlan>> JobMoves::dry_run(JobId whole, MigrateRequest request) {
  const auto job = find_whole(deps_.jobs, whole);
  if (!job) co_return job_was_removed(whole);
  const Job& first = *job->ranks.front();
  if (is_common(first)) {
    CKPT_CO_TRY(together, co_await deps_.gang_moves.dry_run(whole, std::move(request)));
    co_return together;
  }
  CKPT_CO_TRYV(check_of_one_rank(request));
  const wire::Communicators communicators = request.options.communicators;
  CKPT_CO_TRY(single, co_await deps_.moves.dry_run(whole, std::move(request)));
  JobMovePlan plan = plan_of(std::move(single));
  plan.communicators = communicators;
  co_return plan;
}

control::Task<Result<const Migration*>> JobMoves::migrate(JobId whole, MigrateRequest request) {
  const auto job = find_whole(deps_.jobs, whole);
  if (!job) co_return job_was_removed(whole);
  if (is_common(*job->ranks.front())) {
    CKPT_CO_TRY(together, co_await deps_.gang_moves.begin(whole, std::move(request)));
    co_return together;
  }
  CKPT_CO_TRYV(check_of_one_rank(request));
  CKPT_CO_TRY(single, co_await deps_.moves.migrate(whole, std::move(request)));
  co_return single;
}

const Migration* JobMoves::open_of(const WholeJob& job) const {
  return deps_.gang_moves.open_of(job);
}

bool JobMoves::queries_nodes(const Job& rank) const {
  return !is_common(rank);
}

control::Task<Result<std::vector<TargetAnswer>>> JobMoves::ask(JobId id, std::vector<Place> targets) {
  std::string any_network;
  co_return co_await deps_.moves.ask(id, std::move(targets), std::move(any_network));
}

control::Task<Result<void>> JobMoves::check_source(JobId whole, bool leaves_node) {
  const auto job = find_whole(deps_.jobs, whole);
  if (!job) co_return job_was_removed(whole);
  if (is_common(*job->ranks.front())) co_return ok();
  co_return co_await deps_.moves.check_source(whole, leaves_node);
}

bool JobMoves::give_up_parking(const Job& rank, const JobMovePlan& plan, const std::string& reason) {
  const bool has_place = !plan.candidates.empty() && plan.candidates.front().suitable;
  return has_place && give_up_parking(rank, reason);
}

}  // namespace ckpt::coordinator
