// SPDX-License-Identifier: Apache-2.0
#include "coordinator/gangs/moves/job_moves.h"

#include <algorithm>

namespace ckpt::coordinator {

bool JobMoves::is_preparing(const Job& rank) const {
  return needs_preparation(rank) && deps_.gang_moves.is_beginning(rank.spec.gang.id);
}

// A rank of a gang has no reason here: the plan of the gang's move states its obstacles.
std::string JobMoves::why_not_movable(const Job& rank) const {
  return needs_preparation(rank) ? std::string() : deps_.states.why_not_movable(rank);
}

std::vector<std::uint32_t> JobMoves::numbers_of(const std::vector<JobId>& ranks) const {
  std::vector<std::uint32_t> numbers;
  for (const JobId id : ranks) numbers.push_back(rank_of(id).rank_number());
  return numbers;
}

Result<JobMovePlan> JobMoves::plan(const std::vector<JobId>& ranks, const PlanHints& hints) const {
  const Job& job = rank_of(ranks.front());
  if (needs_preparation(job)) return plan_together(ranks, hints);
  CKPT_TRY(found, deps_.planner.plan(job, "auto", hints));
  JobMovePlan plan;
  if (found.to) plan.places.push_back(*found.to);
  plan.reason = std::move(found.reason);
  if (!found.to) plan.obstacle = deps_.states.why_not_movable(job);
  plan.passing = found.passing;
  plan.no_gpu = found.no_gpu;
  plan.candidates = std::move(found.candidates);
  return plan;
}

Result<JobMovePlan> JobMoves::plan_together(const std::vector<JobId>& ranks, const PlanHints& hints) const {
  MigrateRequest request;
  request.ranks = numbers_of(ranks);
  CKPT_TRY(found, deps_.gang_moves.plan(rank_of(ranks.front()).spec.gang.id, request, hints.closed));
  JobMovePlan plan;
  plan.reason = std::move(found.reason);
  if (found.places.empty()) return plan;
  // `places` has the order of `ranks`, which can differ from the order of the plan.
  for (const std::uint32_t number : request.ranks) {
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
  if (needs_preparation(job)) {
    request.ranks = numbers_of(ranks);
    deps_.gang_moves.begin_soon(job.spec.gang.id, std::move(request), hints.closed, std::move(failed));
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

bool JobMoves::give_up_parking(const Job& rank, const JobMovePlan& plan, const std::string& reason) {
  const bool has_place = !plan.candidates.empty() && plan.candidates.front().suitable;
  return has_place && give_up_parking(rank, reason);
}

}  // namespace ckpt::coordinator
