// SPDX-License-Identifier: Apache-2.0
#include "coordinator/gangs/gang_restores.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "coordinator/images/wait_for_change.h"
#include "libckpt/net/control/spawn.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::coordinator {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kAskingCheckpointStore{30};
constexpr std::chrono::minutes kLongestRise{60};

// Returns the most work that any rank has done since its own image. Each rank is compared with its own image,
// because node clocks and the moments of one barrier differ.
std::int64_t lost_ms(const WholeJob& gang, const GangSet& set) {
  std::int64_t lost = 0;
  for (std::size_t at = 0; at < gang.ranks.size(); ++at)
    lost = std::max(lost, gang.ranks[at]->last_work_ms() - set.images[at].barrier_ms);
  return lost;
}

// Returns the reasons of the ranks that could not start, without the reasons of ranks that are parked only
// because those ranks could not start.
std::string why_parked(const WholeJob& gang) {
  std::string reason;
  for (const Job* rank : gang.ranks) {
    if (rank->reason.find(lifecycle::kRestsWithOthers) != std::string::npos) continue;
    reason += fmt::format("{}rank {}: {}", reason.empty() ? "" : "; ", rank->rank_number(), rank->reason);
  }
  return reason;
}

}  // namespace

Result<WholeJob> GangRestores::find(JobId id, const GangRestoreWish& wish) const {
  auto gang = find_whole(deps_.jobs, id);
  if (!gang) return job_was_removed(id);
  const auto refused = [&gang](const std::string& reason) {
    return Error(ErrorCode::kRefused, "Job " + gang->name + " cannot be continued from images: " + reason);
  };
  if (gang->ranks.size() != gang->size)
    return refused(fmt::format("only {} of its {} ranks are known", gang->ranks.size(), gang->size));
  for (const Job* rank : gang->ranks) {
    RestoreWish own;
    own.verb = wish.verb;
    CKPT_TRYV(deps_.restores.may_restore(rank->id, own));
    if (holds_gpu(rank->state))
      return refused(fmt::format("rank {} still runs: `suspend` or `stop` it first", rank->rank_number()));
  }
  return *std::move(gang);
}

Result<GangSet> GangRestores::choose_set(const WholeJob& gang, const GangRestoreWish& wish) const {
  std::optional<GangSet> set;
  if (wish.image) {
    set = set_with(deps_.catalog, gang, *wish.image);
    if (!set)
      return Error(ErrorCode::kNotFound,
                   "There is no complete set of images, one for each rank, taken at the same step as " +
                       image_text(*wish.image));
  } else {
    auto sets = sets_of(deps_.catalog, gang);
    const std::string reason = sets.empty() ? "" : sets.front().suspect();
    const std::string newest = sets.empty() ? "" : image_text(sets.front().images.front());
    std::erase_if(sets, [](const GangSet& one) { return !one.suspect().empty(); });
    if (sets.empty() && !reason.empty())
      return Error(ErrorCode::kRefused,
                   fmt::format("The images of {} are suspect, since they were taken after a fault of a GPU "
                               "({}): `restore {}` uses these images anyway",
                               gang.name, reason, newest));
    if (sets.empty())
      return Error(ErrorCode::kNotFound, "There is no set of images of all ranks of job " + gang.name +
                                             " at one step: `snapshot` takes one");
    set = std::move(sets.front());
  }
  for (const Image& image : set->images) {
    if (!deps_.finder.is_readable(image))
      return Error(ErrorCode::kUnavailable, "Image " + image_text(image) + " is in the checkpoint store of " +
                                                image.node + ", which is not connected");
  }
  return *std::move(set);
}

// Checks that each image can be read. An image in a folder is checked by the node that will read it, because
// the node that wrote it may no longer exist.
control::Task<Result<void>> GangRestores::check_is_readable(GangSet set, std::vector<Place> places) {
  for (std::size_t at = 0; at < places.size(); ++at) {
    const Image& image = set.images[at];
    const std::string node = image.folder.empty() ? image.node : places[at].node;
    wire::CheckpointStoreOrder order;
    order.act = wire::CheckpointStoreAct::kList;
    order.folder = image.folder;
    order.image_job = image.image_job;
    order.of_job = true;
    CKPT_CO_TRYV(co_await deps_.calls.call(node, std::move(order), kAskingCheckpointStore));
    if (!deps_.catalog.is_whole_at(node, image))
      co_return Error(ErrorCode::kUnavailable, node + " has no complete copy of image " + image_text(image));
  }
  co_return ok();
}

Result<std::vector<Place>> GangRestores::choose_places(const WholeJob& gang, const GangSet& set,
                                                       const GangRestoreWish& wish) const {
  PlacementRequest wanted;
  for (std::size_t at = 0; at < gang.ranks.size(); ++at) {
    PlacementRequest own = deps_.planner.request_for(*gang.ranks[at], set.images[at]);
    const std::uint64_t max_bytes = std::max(wanted.memory_bytes, own.memory_bytes);
    wanted = std::move(own);
    wanted.memory_bytes = max_bytes;
  }
  GangShape shape;
  shape.ranks = gang.size;
  shape.one_node = gang.ranks.front()->spec.gang.one_node;
  if (shape.one_node && wish.nodes.size() > 1)
    return Error(ErrorCode::kRefused,
                 "Job " + gang.name + " was started with --gpus, so all its ranks must run on one node");
  if (shape.one_node && !wish.nodes.empty())
    wanted.node = wish.nodes.front();
  else
    shape.nodes = wish.nodes;
  CKPT_TRY(plan, deps_.planner.plan_gang(std::move(wanted), wish.nodes, shape));
  if (plan.places.empty()) return Error(ErrorCode::kUnavailable, plan.reason);
  return std::move(plan.places);
}

control::Task<Result<GangRestorePlan>> GangRestores::plan(JobId id, GangRestoreWish wish) {
  CKPT_CO_TRY(before, find(id, wish));
  CKPT_CO_TRY(chosen, choose_set(before, wish));
  CKPT_CO_TRY(tried, choose_places(before, chosen, wish));
  CKPT_CO_TRYV(co_await check_is_readable(chosen, std::move(tried)));
  CKPT_CO_TRY(gang, find(id, wish));  // the gang may have changed during the checks
  GangRestorePlan plan;
  CKPT_CO_TRY(places, choose_places(gang, chosen, wish));
  plan.places = std::move(places);
  plan.set = std::move(chosen);
  plan.lost_ms = lost_ms(gang, plan.set);
  if (plan.lost_ms > 0 && !wish.accept_loss)
    plan.obstacle = fmt::format(
        "Job {} has continued since its images: {:.1f} s of its work would be lost (use --accept-loss to "
        "restore the job anyway)",
        gang.name, static_cast<double>(plan.lost_ms) / 1000);
  co_return plan;
}

control::Task<Result<TaskId>> GangRestores::begin(JobId id, GangRestoreWish wish) {
  CKPT_CO_TRY(chosen, co_await plan(id, wish));
  if (!chosen.obstacle.empty()) co_return Error(ErrorCode::kRefused, chosen.obstacle);
  CKPT_CO_TRY(gang, find(id, wish));
  std::vector<OperationRunner::Begun> operations;
  for (std::size_t at = 0; at < gang.ranks.size(); ++at) {
    OperationRunner::Begun& begun = operations.emplace_back();
    begun.job = gang.ranks[at]->id;
    begun.operation.goal = OperationGoal::kRunning;
    begun.operation.stage = OperationStage::kEnding;
    begun.operation.verb = wish.verb;
    begun.operation.reason = wish.reason;
    begun.operation.by_user = true;
    begun.operation.image = chosen.set.images[at];
    begun.operation.to_node = chosen.places[at].node;
    begun.operation.to_gpu = chosen.places[at].gpu;
    begun.operation.instance_ended = true;
    begun.operation.ended_ms = chosen.set.images[at].barrier_ms + chosen.lost_ms;
  }
  CKPT_CO_TRYV(deps_.runner.begin_all(std::move(operations)));
  ImageTask& task = deps_.tasks.begin(wish.verb, id, gang.name, "starting");
  task.images = chosen.set.images;
  const TaskId number = task.id;
  control::spawn(deps_.executor, wish.verb + " of " + job_text(id), follow(id, std::move(chosen), number));
  co_return number;
}

control::Task<> GangRestores::follow(JobId id, GangRestorePlan plan, TaskId number) {
  const auto runs = co_await wait_until_runs(id);
  if (!runs) {
    const bool is_known = runs.error().code() != ErrorCode::kTimedOut;
    co_return deps_.tasks.fail(number, runs.error(), is_known ? kImageExitFailed : kImageExitUnknown);
  }
  ImageTask* task = deps_.tasks.find(number);
  if (task == nullptr) co_return;
  const auto gang = find_whole(deps_.jobs, id);
  Restored restored;
  restored.image = plan.set.images.front();
  restored.place = plan.places.front();
  restored.incarnation = gang ? gang->ranks.front()->incarnation : 0;
  restored.lost_ms = plan.lost_ms;
  task->image = restored.image;
  task->restored = restored;
  task->places = shares_text(plan.places);
  task->exit_code = plan.lost_ms > 0 ? kImageExitRestored : 0;
  deps_.tasks.finish(number);
}

control::Task<Result<void>> GangRestores::wait_until_runs(JobId id) {
  const auto deadline = steady_clock::now() + kLongestRise;
  while (true) {
    const auto gang = find_whole(deps_.jobs, id);
    if (!gang) co_return job_was_removed(id);
    const bool is_over = std::none_of(gang->ranks.begin(), gang->ranks.end(),
                                      [](const Job* rank) { return rank->operation.has_value(); });
    const auto rests = [](const Job* rank) { return rank->state == JobState::kParked; };
    const auto count = std::count_if(gang->ranks.begin(), gang->ranks.end(), rests);
    if (is_over && count == 0) co_return ok();
    // The start has failed once all ranks are parked again (lifecycle/rank_rules.h).
    if (is_over && count == static_cast<std::ptrdiff_t>(gang->ranks.size()))
      co_return Error(ErrorCode::kAborted,
                      "Not all ranks started, and all are parked again: " + why_parked(*gang));
    if (steady_clock::now() >= deadline)
      co_return Error(ErrorCode::kTimedOut,
                      "Not all ranks of " + gang->name +
                          " have started yet: `gpumigrate describe` shows the states of the ranks");
    co_await wait_for_change(deps_.jobs);
  }
}

}  // namespace ckpt::coordinator
