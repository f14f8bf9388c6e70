// SPDX-License-Identifier: Apache-2.0
#include "coordinator/images/operations/restore_plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "libckpt/base/clock.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::coordinator {
namespace {

constexpr std::chrono::seconds kRequestListing{30};
constexpr std::chrono::seconds kReading{30};
constexpr std::size_t kMaxTargetsAsked = 4;
constexpr unsigned kMaxNewerImages = 3;  // the limit on repeated selections of the image, because newer
                                         // images appeared while nodes were queried

std::string span_text(std::int64_t ms) {
  constexpr std::int64_t kMinuteMs = 60'000;
  if (ms < 2 * kMinuteMs) return fmt::format("{:.1f} s", static_cast<double>(ms) / 1000);
  return fmt::format("{}m{:02}s", ms / kMinuteMs, ms % kMinuteMs / 1000);
}

// Returns why the restore is refused unless the loss is accepted, or an empty string if nothing is lost.
std::string loss_of(const RestorePlan& plan, const std::string& name) {
  if (plan.lost_ms == 0 && !plan.runs) return {};
  const std::string how = plan.runs ? "runs, and would return to " : "has continued since ";
  return fmt::format(
      "Job {} {}{}: {} of its work would be lost (use --accept-loss to restore the job anyway)", name, how,
      image_text(plan.image), span_text(plan.lost_ms));
}

}  // namespace

Result<void> RestorePlans::may_restore(JobId id, const RestoreWish& wish) const {
  const Job* job = deps_.jobs.find(id);
  if (job == nullptr) return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
  const auto refused = [&](const std::string& reason) {
    return Error(ErrorCode::kRefused,
                 "Job " + job->spec.name + " cannot be continued from an image: " + reason);
  };
  if (const Migration* open = deps_.migrations.open_of(id))
    return refused("migration " + migration_text(open->id) +
                   " of the job is open (`abort` or `resolve` it first)");
  if (wish.verb == "resume" && (job->state != JobState::kParked || job->operation))
    return refused("it is " + deps_.states.of(*job) + ", not parked");
  if (job->stop_requested && !wish.by_user) return refused("it is being stopped");
  if (job->unfenced)
    return refused("node " + job->node() + " was removed, and may still run the job: `node rm " +
                   job->node() + " --force --fenced` confirms that the job is not running there");
  const auto is_taken = [&](const std::string& name) { return deps_.jobs.is_name_taken(name, id); };
  if (is_ended(job->state) && (is_taken(job->spec.name) || is_taken(job->whole_name())))
    return refused("another job that has not ended uses the same name");
  if (job->operation) {
    const std::string& node = job->node();
    if (!wish.force)
      return refused(
          "it is " + deps_.states.of(*job) + " already" +
          (deps_.nodes.connected(node)
               ? ""
               : ", and node " + node +
                     " is not connected (--force confirms that the job's instance has ended permanently)"));
    return ok();
  }
  if (const std::string away = lifecycle::silent_node(*job, deps_.view); !away.empty() && !wish.force)
    return refused("it was stopped, but may still run on node " + away +
                   ", which is not connected. --force confirms that this instance has ended permanently; if "
                   "the instance appears again, it is stopped");
  if (job->state == JobState::kStarting) return refused("it is starting");
  if (holds_gpu(job->state) && !deps_.nodes.connected(job->node()) && !wish.force)
    return refused("node " + job->node() +
                   ", where it was last known to run, is not connected. --force confirms that this instance "
                   "has ended permanently; if the instance appears again, it is stopped");
  return ok();
}

// Returns a GPU whose node can read the image. The node is queried before any instance is ended for the
// restore.
control::Task<Result<Place>> RestorePlans::choose_place(Job job, Image image, RestoreWish wish) {
  CKPT_CO_TRY(plan, deps_.planner.plan_restore(job, image, wish.to, wish.hints));
  if (!plan.to) co_return Error(ErrorCode::kUnavailable, plan.reason);
  std::string obstacle;
  std::set<std::string> asked;
  for (const Candidate& candidate : plan.candidates) {
    // An image in a node's own checkpoint store is queried at that node, even if a different node will read
    // it.
    const std::string node = image.folder.empty() ? image.node : candidate.place.node;
    if (!candidate.suitable || asked.size() >= kMaxTargetsAsked) break;
    if (!asked.insert(node).second) continue;
    wire::CheckpointStoreOrder order;
    order.act = wire::CheckpointStoreAct::kList;
    order.folder = image.folder;
    order.image_job = image.image_job;
    order.of_job = true;
    const auto listed = co_await deps_.calls.call(node, order, kRequestListing);
    if (listed && deps_.catalog.is_whole_at(node, image)) co_return candidate.place;
    obstacle +=
        (obstacle.empty() ? "" : "; ") + node + ": " +
        (listed ? "it has no complete copy of image " + image_text(image) : listed.error().to_string());
  }
  co_return Error(ErrorCode::kUnavailable,
                  "No node with a suitable GPU can read " + image_text(image) + ": " + obstacle);
}

// Returns the time of the last known work of the job. An older image lacks some of that work.
std::int64_t RestorePlans::last_work_ms(const Job& job, const RestoreWish& wish) const {
  if (!holds_gpu(job.state)) return job.last_work_ms();
  const Node* node = deps_.nodes.find(job.node());
  const bool operator_confirmed = wish.force && node != nullptr && !node->connected();
  return operator_confirmed ? node->row.last_seen_ms : wall_clock_ms();
}

RestorePlan RestorePlans::evaluate(const Job& job, const RestoreWish& wish, const Image& image,
                                   const Place& place) const {
  RestorePlan plan;
  plan.image = image;
  plan.place = place;
  plan.runs = holds_gpu(job.state);
  plan.last_work_ms = last_work_ms(job, wish);
  plan.lost_ms = std::max<std::int64_t>(0, plan.last_work_ms - image.barrier_ms);
  if (wish.verb == "restore" && !wish.accept_loss) plan.obstacle = loss_of(plan, job.spec.name);
  return plan;
}

control::Task<Result<RestorePlan>> RestorePlans::plan(JobId id, RestoreWish wish) {
  CKPT_CO_TRYV(may_restore(id, wish));
  const Job job = *deps_.jobs.find(id);
  CKPT_CO_TRY(image, deps_.finder.for_order(job, wish.verb, wish.image));
  // A plan with an obstacle is refused before any node is queried.
  if (RestorePlan plan = evaluate(job, wish, image, Place()); !plan.obstacle.empty() && !wish.only_plan)
    co_return plan;
  for (unsigned asked = 1;; ++asked) {
    CKPT_CO_TRY(place, co_await choose_place(job, image, wish));
    // The image is selected again, because a queried node may have reported a newer one.
    CKPT_CO_TRY(newest, deps_.finder.for_order(job, wish.verb, wish.image));
    if (newest.barrier_ms <= image.barrier_ms || asked == kMaxNewerImages)
      co_return plan_at(id, wish, image, place);
    image = std::move(newest);
  }
}

Result<RestorePlan> RestorePlans::plan_at(JobId id, const RestoreWish& wish, const Image& image,
                                          const Place& place) const {
  CKPT_TRYV(may_restore(id, wish));
  const Job* job = deps_.jobs.find(id);
  CKPT_TRY(still, deps_.planner.plan_restore(*job, image, to_text(place), wish.hints));
  if (!still.to) return Error(ErrorCode::kUnavailable, still.reason);
  return evaluate(*job, wish, image, place);
}

control::Task<Result<RevivalPlan>> RestorePlans::plan_revival(RestoreWish wish) {
  const Image image = *wish.image;
  CKPT_CO_TRYV(ImageFinder::check_is_alone(image));
  if (!deps_.finder.is_readable(image))
    co_return Error(ErrorCode::kUnavailable,
                    "Image " + image_text(image) + " is on " + image.node + ", which is not connected");
  wire::ReadImage request;
  request.folder = image.folder;
  request.image_job = image.image_job;
  request.version = image.version;
  CKPT_CO_TRY(facts, co_await deps_.calls.read_image(image.node, std::move(request), kReading));
  if (facts.spec.argv.empty() || facts.spec.ranks.size() != 1)
    co_return Error(ErrorCode::kCorrupt,
                    "Image " + image_text(image) + " does not describe how its job is started");
  if (deps_.jobs.is_name_taken(facts.spec.name))
    co_return Error(ErrorCode::kRefused,
                    "Another job that has not ended uses the name " + facts.spec.name + " by now");
  // The job is not known, and neither is its work after its newest image. So that image counts as its last
  // work.
  const auto newest = deps_.catalog.newest(image.job, [](const Image&) { return true; });
  Job job;
  job.spec = facts.spec;
  job.state = JobState::kParked;
  job.ended_ms = std::max(image.barrier_ms, newest ? newest->barrier_ms : 0);
  RevivalPlan plan;
  plan.restore = evaluate(job, wish, image, Place());
  plan.spec = std::move(facts.spec);
  if (!plan.restore.obstacle.empty() && !wish.only_plan) co_return plan;
  CKPT_CO_TRY(place, co_await choose_place(std::move(job), image, wish));
  plan.restore.place = place;
  co_return plan;
}

}  // namespace ckpt::coordinator
