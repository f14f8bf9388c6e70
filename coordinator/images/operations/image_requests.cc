// SPDX-License-Identifier: Apache-2.0
#include "coordinator/images/operations/image_requests.h"

#include <set>

#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::coordinator {
namespace {

constexpr std::chrono::seconds kRequestListing{30};
constexpr std::chrono::seconds kReading{30};
// Beyond an operation's own deadline, at which it reports its result.
constexpr std::chrono::minutes kForItsEnd{2};
constexpr std::size_t kMaxTargetsAsked = 4;

}  // namespace

Result<void> ImageRequests::may_restore(JobId id, const RestoreWish& wish) const {
  const Job* job = parts_.jobs.find(id);
  if (job == nullptr) return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
  const auto refused = [&](const std::string& why) {
    return Error(ErrorCode::kRefused, "Job " + job->spec.name + " cannot go on from an image: " + why);
  };
  if (const Migration* open = parts_.migrations.open_of(id))
    return refused("migration " + migration_text(open->id) +
                   " of it is open (`abort` or `resolve` it first)");
  if (wish.verb == "resume" && (job->state != JobState::kParked || job->operation))
    return refused("it is " + parts_.states.of(*job) + ", not parked");
  if (job->unfenced)
    return refused("node " + job->node() + " was removed, and may still run it: `node rm " + job->node() +
                   " --force --fenced` is your word that it does not");
  const Job* same = parts_.jobs.find(job->spec.name);
  if (is_ended(job->state) && same != nullptr && same != job && !is_ended(same->state))
    return refused("a live job has its name by now (" + job_text(same->id) + ")");
  if (job->operation) {
    const std::string& node = job->node();
    if (!wish.force)
      return refused("it is " + parts_.states.of(*job) + " already" +
                     (parts_.nodes.connected(node) ? ""
                                                   : ", and node " + node +
                                                         " is not connected (--force is your word "
                                                         "that it is dead for good)"));
    return ok();
  }
  if (job->state == JobState::kStarting) return refused("it is starting");
  if (holds_gpu(job->state) && !parts_.nodes.connected(job->node()) && !wish.force)
    return refused("node " + job->node() +
                   ", where it runs as far as anyone knows, is not connected. --force is your word "
                   "that this instance is dead for good; should it turn up, it is ended");
  return ok();
}

// A GPU whose node can read the image: asked before anything ends for it.
control::Task<Result<Place>> ImageRequests::choose_place(JobId id, Image image, RestoreWish wish) {
  const Job* job = parts_.jobs.find(id);
  if (job == nullptr) co_return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
  CKPT_CO_TRY(plan, parts_.planner.plan_restore(*job, image, wish.to, wish.hints));
  if (!plan.to) co_return Error(ErrorCode::kUnavailable, plan.reason);
  std::string obstacle;
  std::set<std::string> asked;
  for (const Candidate& candidate : plan.candidates) {
    // A node's own vault belongs to that node, whichever node reads it.
    const std::string node = image.folder.empty() ? image.node : candidate.place.node;
    if (!candidate.suitable || asked.size() >= kMaxTargetsAsked) break;
    if (!asked.insert(node).second) continue;
    wire::VaultOrder order;
    order.act = wire::VaultAct::kList;
    order.folder = image.folder;
    order.vault_job = image.vault_job;
    order.of_job = true;
    const auto listed = co_await parts_.calls.call(node, order, kRequestListing);
    if (listed && parts_.catalog.is_whole_at(node, image)) co_return candidate.place;
    obstacle += (obstacle.empty() ? "" : "; ") + node + ": " +
                (listed ? "it has no whole image " + image_text(image) : listed.assume_error().to_string());
  }
  co_return Error(ErrorCode::kUnavailable,
                  "No node with room can read " + image_text(image) + ": " + obstacle);
}

control::Task<Result<TaskId>> ImageRequests::begin_restore(JobId id, RestoreWish wish) {
  CKPT_CO_TRYV(may_restore(id, wish));
  CKPT_CO_TRY(image, parts_.finder.for_order(*parts_.jobs.find(id), wish.verb, wish.image));
  CKPT_CO_TRY(place, co_await choose_place(id, image, wish));
  if (const Job* now = parts_.jobs.find(id); wish.force && now != nullptr && now->operation &&
                                             now->operation->stage == OperationStage::kTaking &&
                                             parts_.nodes.connected(now->node())) {
    CKPT_CO_TRYV(co_await parts_.cancels.cancel_parking(id, "An image of the job is restored by force"));
  }
  CKPT_CO_TRYV(may_restore(id, wish));  // much may have happened meanwhile
  const Job* job = parts_.jobs.find(id);
  CKPT_CO_TRY(still, parts_.planner.plan_restore(*job, image, to_text(place), wish.hints));
  if (!still.to) co_return Error(ErrorCode::kUnavailable, still.reason);
  ImageOperation operation;
  operation.goal = OperationGoal::kRunning;
  operation.stage = OperationStage::kEnding;
  operation.verb = wish.verb;
  operation.why = wish.why;
  operation.by_user = wish.by_user;
  operation.image = image;
  operation.to_node = place.node;
  operation.to_gpu = place.gpu;
  const bool rests = !holds_gpu(job->state);
  operation.by_word = !rests && wish.force && !parts_.nodes.connected(job->node());
  operation.gone = rests || operation.by_word;
  if (rests) operation.ended_ms = job->ended_ms;
  if (const Node* node = parts_.nodes.find(job->node()); operation.by_word && node != nullptr)
    operation.ended_ms = node->row.last_seen_ms;
  co_return parts_.runner.begin(id, std::move(operation));
}

control::Task<Result<TaskId>> ImageRequests::begin_revival(RestoreWish wish) {
  const Image image = *wish.image;
  if (!parts_.finder.is_readable(image))
    co_return Error(ErrorCode::kUnavailable,
                    "Image " + image_text(image) + " is on " + image.node + ", which is not connected");
  wire::ReadImage request;
  request.folder = image.folder;
  request.vault_job = image.vault_job;
  request.version = image.version;
  CKPT_CO_TRY(facts, co_await parts_.calls.read_image(image.node, std::move(request), kReading));
  if (facts.spec.argv.empty() || facts.spec.ranks.size() != 1)
    co_return Error(ErrorCode::kCorrupt,
                    "Image " + image_text(image) + " does not say how its job is started");
  // Its work after its image is not known.
  CKPT_CO_TRY(revived, parts_.admission.revive(std::move(facts.spec), Place(image.node, 0), image_text(image),
                                               image.barrier_ms));
  const JobId id = revived->id;
  auto begun = co_await begin_restore(id, std::move(wish));
  if (!begun) parts_.jobs.drop(id);
  co_return begun;
}

control::Task<Result<TaskId>> ImageRequests::begin_parking(JobId id, Destination to,
                                                           ImageOperation operation) {
  CKPT_CO_TRYV(co_await parts_.snapshots.wait_until_free(id));
  const Job* job = parts_.jobs.find(id);
  operation.goal = OperationGoal::kParked;
  operation.stage = OperationStage::kTaking;
  operation.image.node = vault_node(*job, to);
  operation.image.folder = to.folder;
  operation.image.vault_job = parts_.catalog.vault_job_of(*job);
  operation.image.job = id;
  operation.image.version =
      parts_.catalog.last_version(operation.image.node, to.folder, operation.image.vault_job);
  co_return parts_.runner.begin(id, std::move(operation));
}

control::Task<Result<TaskId>> ImageRequests::begin_suspend(JobId id, std::string to) {
  const Job* job = parts_.jobs.find(id);
  if (job == nullptr) co_return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
  CKPT_CO_TRY(destination, destination_of(to, parts_.nodes));
  if (to.empty() && job->protection) destination = kept_at(*job->protection);
  if (job->state == JobState::kParked && !job->operation) {
    // Already; but now it stays until a user resumes it.
    Job changed = *job;
    changed.resumes_itself = false;
    CKPT_CO_TRYV(parts_.jobs.replace(std::move(changed)));
    const TaskId done = parts_.tasks.begin("suspend", *parts_.jobs.find(id), "").id;
    parts_.tasks.finish(done);
    co_return done;
  }
  ImageOperation operation;
  operation.verb = "suspend";
  operation.why = "suspended";
  operation.by_user = true;
  co_return co_await begin_parking(id, std::move(destination), std::move(operation));
}

// ---- the port for other parts of the coordinator ----

control::Task<Result<void>> ImageRequests::park(JobId id, bool snapshot, std::string why) {
  const Job* job = parts_.jobs.find(id);
  if (job == nullptr) co_return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
  if (job->state == JobState::kParked && !job->operation) co_return ok();
  ImageOperation operation;
  operation.verb = "park";
  operation.why = std::move(why);
  TaskId task = 0;
  if (snapshot) {
    Destination to;
    if (job->protection) to = kept_at(*job->protection);
    // Better with its own node than not at all.
    if (to.folder.empty() && !parts_.nodes.connected(vault_node(*job, to))) to.node.clear();
    CKPT_CO_TRY(begun, co_await begin_parking(id, std::move(to), std::move(operation)));
    task = begun;
  } else {
    CKPT_CO_TRY(begun, begin_resting(id, std::move(operation)));
    task = begun;
  }
  CKPT_CO_TRY(done, co_await outcome_of(task, "Parking " + job_text(id)));
  if (done.error) co_return *done.error;
  co_return ok();
}

// Without a last snapshot: in the newest image that there is.
Result<TaskId> ImageRequests::begin_resting(JobId id, ImageOperation operation) {
  const Job* job = parts_.jobs.find(id);
  RestoreWish wish;
  wish.verb = "park";
  wish.by_user = false;
  CKPT_TRYV(may_restore(id, wish));
  const auto image = parts_.catalog.newest(id, [](const Image&) { return true; });
  if (!image) return Error(ErrorCode::kNotFound, "There is no image of job " + job->spec.name);
  operation.goal = OperationGoal::kParked;
  operation.image = *image;
  operation.gone = !holds_gpu(job->state);
  if (operation.gone) operation.ended_ms = job->ended_ms;
  return parts_.runner.begin(id, std::move(operation));
}

control::Task<Result<Restored>> ImageRequests::restore(JobId id, std::optional<Place> to, std::string why) {
  RestoreWish wish;
  wish.why = std::move(why);
  wish.by_user = false;
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
  wish.why = "there is room";
  wish.by_user = false;
  CKPT_CO_TRY(task, co_await begin_restore(id, std::move(wish)));
  const auto done = co_await outcome_of(task, "Resuming " + job_text(id));
  // One that takes long has not failed.
  if (done && done.assume_value().error) co_return *done.assume_value().error;
  co_return ok();
}

control::Task<Result<ImageTask>> ImageRequests::outcome_of(TaskId task, std::string what) {
  co_await parts_.tasks.wait(task, parts_.open.deadline() + kForItsEnd);
  const ImageTask* done = parts_.tasks.find(task);
  if (done == nullptr || done->open) co_return Error(ErrorCode::kTimedOut, what + " has not ended");
  co_return *done;
}

}  // namespace ckpt::coordinator
