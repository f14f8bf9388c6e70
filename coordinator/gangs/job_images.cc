// SPDX-License-Identifier: Apache-2.0
#include "coordinator/gangs/job_images.h"

#include <algorithm>
#include <utility>

#include "coordinator/policies/placement/gang_placement.h"

namespace ckpt::coordinator {
namespace {

// Returns whether the job has single images, rather than sets.
bool has_single_images(const WholeJob& job) {
  return job.size == 1;
}

// Returns the nodes that `to` permits. An empty list permits any node.
std::vector<std::string> permitted_nodes(const std::string& to) {
  std::vector<std::string> nodes;
  if (to.empty() || to == "auto") return nodes;
  for (std::size_t at = 0; at <= to.size();) {
    const std::size_t end = std::min(to.find(',', at), to.size());
    nodes.push_back(to.substr(at, end - at));
    at = end + 1;
  }
  return nodes;
}

RestoreWish wish_of_one(JobRestoreWish wish) {
  RestoreWish own;
  own.verb = std::move(wish.verb);
  own.reason = std::move(wish.reason);
  own.to = std::move(wish.to);
  own.image = std::move(wish.image);
  own.force = wish.force;
  own.accept_loss = wish.accept_loss;
  return own;
}

GangRestoreWish wish_of_ranks(JobRestoreWish wish) {
  GangRestoreWish all;
  all.verb = std::move(wish.verb);
  all.reason = std::move(wish.reason);
  all.nodes = permitted_nodes(wish.to);
  all.image = std::move(wish.image);
  all.accept_loss = wish.accept_loss;
  return all;
}

}  // namespace

JobRestorePlan job_restore_plan(const RestorePlan& plan) {
  JobRestorePlan view;
  view.images = {plan.image};
  view.places = {plan.place};
  view.to = to_text(plan.place);
  view.barrier_ms = plan.image.barrier_ms;
  view.runs = plan.runs;
  view.lost_ms = plan.lost_ms;
  view.obstacle = plan.obstacle;
  return view;
}

JobRestorePlan job_restore_plan(const GangRestorePlan& plan) {
  JobRestorePlan view;
  view.images = plan.set.images;
  view.places = plan.places;
  view.to = shares_text(plan.places);
  view.barrier_ms = plan.set.barrier_ms;
  view.lost_ms = plan.lost_ms;
  view.obstacle = plan.obstacle;
  return view;
}

Result<WholeJob> JobImages::find(JobId id) const {
  if (auto whole = find_whole(deps_.jobs, id)) return *std::move(whole);
  const Job* rank = deps_.jobs.find(id);
  if (rank == nullptr) return job_was_removed(id);
  return Error(ErrorCode::kNotSupported, "Job " + label(*rank) + " is a rank of " + rank->whole_name() +
                                             ": images of all ranks are taken and used together, so name "
                                             "the job");
}

Result<WholeJob> JobImages::find_for(JobId id, const JobRestoreWish& wish) const {
  CKPT_TRY(job, find(id));
  const auto is_of = [&wish](const Job* rank) {
    return wire::may_mean(wish.image->job, rank->id) || wire::may_mean(rank->id, wish.image->job);
  };
  if (wish.image && std::none_of(job.ranks.begin(), job.ranks.end(), is_of))
    return Error(ErrorCode::kInvalidArgument,
                 "Image " + image_text(*wish.image) + " does not belong to job " + job.name);
  if (wish.force && !has_single_images(job))
    return Error(ErrorCode::kNotSupported, "--force is not supported for a job of several ranks");
  return std::move(job);
}

control::Task<Result<TaskId>> JobImages::begin_snapshot(JobId id, std::string to) {
  CKPT_CO_TRY(job, find(id));
  if (has_single_images(job)) co_return co_await deps_.snapshots.begin(id, std::move(to));
  co_return co_await deps_.gang_images.begin_snapshot(id, std::move(to));
}

control::Task<Result<TaskId>> JobImages::begin_suspend(JobId id, std::string to) {
  CKPT_CO_TRY(job, find(id));
  if (has_single_images(job)) co_return co_await deps_.requests.begin_suspend(id, std::move(to));
  co_return co_await deps_.gang_images.begin_suspend(id, std::move(to));
}

control::Task<Result<TaskId>> JobImages::begin_restore(JobId id, JobRestoreWish wish) {
  CKPT_CO_TRY(job, find_for(id, wish));
  if (has_single_images(job)) {
    RestoreWish own = wish_of_one(std::move(wish));
    co_return co_await deps_.requests.begin_restore(id, std::move(own));
  }
  GangRestoreWish all = wish_of_ranks(std::move(wish));
  co_return co_await deps_.gang_restores.begin(id, std::move(all));
}

control::Task<Result<JobRestorePlan>> JobImages::dry_restore(JobId id, JobRestoreWish wish) {
  CKPT_CO_TRY(job, find_for(id, wish));
  if (has_single_images(job)) {
    RestoreWish own = wish_of_one(std::move(wish));
    own.only_plan = true;
    CKPT_CO_TRY(plan, co_await deps_.requests.dry_restore(id, std::move(own)));
    co_return job_restore_plan(plan);
  }
  GangRestoreWish all = wish_of_ranks(std::move(wish));
  CKPT_CO_TRY(plan, co_await deps_.gang_restores.plan(id, std::move(all)));
  co_return job_restore_plan(plan);
}

control::Task<Result<void>> JobImages::capture(JobId id, Destination to) {
  CKPT_CO_TRY(job, find(id));
  if (has_single_images(job)) co_return co_await deps_.snapshots.capture(id, std::move(to), 0);
  const auto captured = co_await deps_.gang_images.snapshot(id, std::move(to), 0);
  if (!captured) co_return captured.error();
  co_return ok();
}

std::string JobImages::why_none(const WholeJob& job) const {
  return has_single_images(job) ? deps_.snapshots.why_none(*job.ranks.front())
                                : deps_.gang_images.why_none(job);
}

std::string JobImages::why_never(const WholeJob& job) const {
  return has_single_images(job) ? deps_.snapshots.why_never(*job.ranks.front()) : GangImages::why_never(job);
}

// ---- The interface for other parts of the coordinator ----

Result<void> JobImages::check_is_alone(JobId id) const {
  const Job* rank = deps_.jobs.find(id);
  const auto whole = rank == nullptr ? std::nullopt : find_whole(deps_.jobs, rank->whole());
  if (!whole || has_single_images(*whole)) return ok();
  return Error(ErrorCode::kRefused, "Job " + label(*rank) + " is a rank of " + whole->name +
                                        ", whose ranks are parked and restored together");
}

std::optional<Image> JobImages::newest(JobId rank) const {
  return deps_.requests.newest(rank);
}

control::Task<Result<Restored>> JobImages::restore(JobId rank, std::optional<Place> to, std::string reason) {
  CKPT_CO_TRYV(check_is_alone(rank));
  co_return co_await deps_.requests.restore(rank, std::move(to), std::move(reason));
}

control::Task<Result<void>> JobImages::park(JobId rank, bool snapshot, std::string reason) {
  const Job* job = deps_.jobs.find(rank);
  const bool is_parked = job != nullptr && job->state == JobState::kParked && !job->operation;
  if (is_parked) co_return ok();
  CKPT_CO_TRYV(check_is_alone(rank));
  co_return co_await deps_.requests.park(rank, snapshot, std::move(reason));
}

}  // namespace ckpt::coordinator
