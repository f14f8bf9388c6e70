// SPDX-License-Identifier: Apache-2.0
#include "coordinator/images/operations/image_requests.h"

#include <spdlog/spdlog.h>

#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::coordinator {
namespace {

// The time beyond an operation's own deadline in which the operation's result must be reported.
constexpr std::chrono::minutes kForItsEnd{2};

}  // namespace

control::Task<Result<TaskId>> ImageRequests::begin_restore(JobId id, RestoreWish wish) {
  CKPT_CO_TRY(plan, co_await deps_.restores.plan(id, wish));
  if (!plan.obstacle.empty()) co_return Error(ErrorCode::kRefused, plan.obstacle);
  const Image image = plan.image;
  const Place place = plan.place;
  if (const Job* now = deps_.jobs.find(id); wish.force && now != nullptr && now->operation &&
                                            now->operation->stage == OperationStage::kTaking &&
                                            deps_.nodes.connected(now->node())) {
    CKPT_CO_TRYV(co_await deps_.cancels.cancel_parking(id, "The job is being restored with --force"));
  }
  // the plan is made again, because the job may have changed in the meantime
  CKPT_CO_TRY(still, deps_.restores.plan_at(id, wish, image, place));
  if (!still.obstacle.empty()) co_return Error(ErrorCode::kRefused, still.obstacle);
  const Job* job = deps_.jobs.find(id);
  ImageOperation operation;
  operation.goal = OperationGoal::kRunning;
  operation.stage = OperationStage::kEnding;
  operation.verb = wish.verb;
  operation.reason = wish.reason;
  operation.by_user = wish.by_user;
  operation.image = image;
  operation.to_node = place.node;
  operation.to_gpu = place.gpu;
  const bool rests = !holds_gpu(job->state);
  const bool source_away = !rests && !deps_.nodes.connected(job->node());
  operation.operator_confirmed =
      wish.force && (source_away || !lifecycle::silent_node(*job, deps_.view).empty());
  operation.instance_ended = rests || (wish.force && source_away);
  if (operation.instance_ended) operation.ended_ms = still.last_work_ms;
  co_return deps_.runner.begin(id, std::move(operation));
}

control::Task<Result<RestorePlan>> ImageRequests::dry_restore(JobId id, RestoreWish wish) {
  co_return co_await deps_.restores.plan(id, std::move(wish));
}

control::Task<Result<RestorePlan>> ImageRequests::dry_revival(RestoreWish wish) {
  CKPT_CO_TRY(plan, co_await deps_.restores.plan_revival(std::move(wish)));
  co_return std::move(plan.restore);
}

control::Task<Result<TaskId>> ImageRequests::begin_revival(RestoreWish wish) {
  CKPT_CO_TRY(plan, co_await deps_.restores.plan_revival(wish));
  if (!plan.restore.obstacle.empty()) co_return Error(ErrorCode::kRefused, plan.restore.obstacle);
  const Image image = *wish.image;
  CKPT_CO_TRY(revived, deps_.admission.revive(std::move(plan.spec), Place(image.node, 0), image_text(image),
                                              plan.restore.last_work_ms));
  const JobId id = revived->id;
  auto begun = co_await begin_restore(id, std::move(wish));
  if (!begun) deps_.jobs.drop(id);
  co_return begun;
}

control::Task<Result<TaskId>> ImageRequests::begin_parking(JobId id, Destination to,
                                                           ImageOperation operation) {
  CKPT_CO_TRYV(co_await deps_.snapshots.wait_until_free(id));
  const Job* job = deps_.jobs.find(id);
  if (const Doubt* doubt = open_doubt(job->doubts))
    co_return Error(ErrorCode::kRefused,
                    "Job " + job->spec.name +
                        " cannot be saved to an image, since its memory must no longer be read (" +
                        doubt->reason + "): `restore " + job->spec.name +
                        " --accept-loss` continues the job from an older image");
  operation.goal = OperationGoal::kParked;
  operation.stage = OperationStage::kTaking;
  operation.image.node = checkpoint_store_node(*job, to);
  operation.image.folder = to.folder;
  operation.image.image_job = deps_.catalog.image_job_of(*job);
  operation.image.job = id;
  operation.image.version =
      deps_.catalog.last_version(operation.image.node, to.folder, operation.image.image_job);
  co_return deps_.runner.begin(id, std::move(operation));
}

control::Task<Result<TaskId>> ImageRequests::begin_suspend(JobId id, std::string to) {
  const Job* job = deps_.jobs.find(id);
  if (job == nullptr) co_return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
  CKPT_CO_TRY(destination, destination_of(to, deps_.nodes));
  if (job->state == JobState::kParked && !job->operation) {
    // The job is already parked. Now it stays parked until a user resumes it.
    CKPT_CO_TRYV(deps_.job_runner.order(id, lifecycle::StaysParked{}));
    const TaskId done = deps_.tasks.begin("suspend", *deps_.jobs.find(id), "").id;
    deps_.tasks.finish(done);
    co_return done;
  }
  ImageOperation operation;
  operation.verb = "suspend";
  operation.reason = "suspended";
  operation.by_user = true;
  if (to.empty()) {
    std::string instead;
    destination = co_await deps_.orders.working_destination(id, &instead);
    if (!instead.empty())
      operation.reason += " at the job's own node, since the job's protection fails: " + instead;
  }
  co_return co_await begin_parking(id, std::move(destination), std::move(operation));
}

// ---- The interface for other parts of the coordinator ----

control::Task<Result<void>> ImageRequests::park(JobId id, bool snapshot, std::string reason) {
  const Job* job = deps_.jobs.find(id);
  if (job == nullptr) co_return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
  if (job->state == JobState::kParked && !job->operation) co_return ok();
  ImageOperation operation;
  operation.verb = "park";
  operation.reason = std::move(reason);
  TaskId task = 0;
  if (snapshot) {
    std::string instead;
    Destination to = co_await deps_.orders.working_destination(id, &instead);
    if (!instead.empty()) spdlog::warn("job {} is parked at its own node: {}", job_text(id), instead);
    CKPT_CO_TRY(begun, co_await begin_parking(id, std::move(to), std::move(operation)));
    task = begun;
  } else {
    CKPT_CO_TRY(begun, start_parking(id, std::move(operation)));
    task = begun;
  }
  CKPT_CO_TRY(done, co_await outcome_of(task, "Parking " + job_text(id)));
  if (done.error) co_return *done.error;
  co_return ok();
}

// Parks the job in its newest existing image, without a last snapshot.
Result<TaskId> ImageRequests::start_parking(JobId id, ImageOperation operation) {
  const Job* job = deps_.jobs.find(id);
  RestoreWish wish;
  wish.verb = "park";
  wish.by_user = false;
  CKPT_TRYV(deps_.restores.may_restore(id, wish));
  const auto image = deps_.catalog.newest(id, [](const Image& known) { return known.suspect.empty(); });
  if (!image) return Error(ErrorCode::kNotFound, "There is no image of job " + job->spec.name);
  operation.goal = OperationGoal::kParked;
  operation.image = *image;
  operation.instance_ended = !holds_gpu(job->state);
  if (operation.instance_ended) operation.ended_ms = job->ended_ms;
  return deps_.runner.begin(id, std::move(operation));
}

control::Task<Result<Restored>> ImageRequests::restore(JobId id, std::optional<Place> to,
                                                       std::string reason) {
  RestoreWish wish;
  wish.reason = std::move(reason);
  wish.by_user = false;
  wish.accept_loss = true;
  if (to) wish.to = to_text(*to);
  CKPT_CO_TRY(task, co_await begin_restore(id, std::move(wish)));
  CKPT_CO_TRY(done, co_await outcome_of(task, "Restoring " + job_text(id)));
  if (done.error) co_return *done.error;
  co_return *done.restored;
}

control::Task<Result<void>> ImageRequests::resume(JobId id, PlanHints claims) {
  RestoreWish wish;
  wish.hints = std::move(claims);
  wish.verb = "resume";
  wish.reason = "a GPU has enough free memory";
  wish.by_user = false;
  CKPT_CO_TRY(task, co_await begin_restore(id, std::move(wish)));
  const auto done = co_await outcome_of(task, "Resuming " + job_text(id));
  // An operation that is still open after the wait has not failed.
  if (done && done->error) co_return *done->error;
  co_return ok();
}

control::Task<Result<ImageTask>> ImageRequests::outcome_of(TaskId task, std::string what) {
  co_await deps_.tasks.wait(task, deps_.open.deadline() + kForItsEnd);
  const ImageTask* done = deps_.tasks.find(task);
  if (done == nullptr || done->open) co_return Error(ErrorCode::kTimedOut, what + " has not ended");
  co_return *done;
}

}  // namespace ckpt::coordinator
