// SPDX-License-Identifier: Apache-2.0
// What begins an operation on a job's images, by order or by itself: which image, where, and whether it may
// be. How it goes on: image_operations.cc.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "coordinator/images/image_table.h"
#include "libckpt/base/clock.h"
#include "libckpt/base/fault.h"
#include "libckpt/net/control/spawn.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::coordinator {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kRequestListing{30};
// Beyond an operation's own deadline, at which it says how it went.
constexpr std::chrono::minutes kForItsEnd{2};
// Who parked a job to have its room gets a moment to take it.
constexpr std::int64_t kRestMs = 3'000;
constexpr unsigned kMaxResumeFailures = 5;
constexpr std::size_t kMaxTargetsAsked = 4;

}  // namespace

// Of everything that was ever started of it, as far as anyone knows.
Incarnation ImageTable::highest_known(const Job& job) const {
  Incarnation highest = std::max(job.incarnation, job.fenced);
  for (const Segment& segment : job.segments) highest = std::max(highest, segment.incarnation);
  for (const auto& [name, node] : parts_.nodes.all()) {
    for (const wire::JobInstance& instance : node.instances) {
      if (instance.job == job.id) highest = std::max(highest, instance.incarnation);
    }
  }
  return highest;
}

Result<void> ImageTable::may_restore(JobId id, const RestoreWish& wish) const {
  const Job* job = parts_.jobs.find(id);
  if (job == nullptr) return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
  const auto refused = [&](const std::string& why) {
    return Error(ErrorCode::kRefused, "Job " + job->spec.name + " cannot go on from an image: " + why);
  };
  if (const Migration* open = parts_.migrations.open_of(id))
    return refused("migration " + migration_text(open->id) +
                   " of it is open (`abort` or `resolve` it first)");
  if (wish.verb == "resume" && (job->state != JobState::kParked || job->operation))
    return refused("it is " + parts_.service.job_state(*job) + ", not parked");
  if (job->unfenced)
    return refused("node " + job->node() + " was removed, and may still run it: `node rm " + job->node() +
                   " --force --fenced` is your word that it does not");
  const Job* same = parts_.jobs.find(job->spec.name);
  if (is_ended(job->state) && same != nullptr && same != job && !is_ended(same->state))
    return refused("a live job has its name by now (" + job_text(same->id) + ")");
  if (job->operation) {
    const std::string& node = job->node();
    if (!wish.force)
      return refused("it is " + parts_.service.job_state(*job) + " already" +
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

Result<Image> ImageTable::image_for(const Job& job, const RestoreWish& wish) const {
  if (wish.image) {
    if (is_readable(*wish.image)) return *wish.image;
    return Error(ErrorCode::kUnavailable, "Image " + image_text(*wish.image) + " is in the vault of " +
                                              wish.image->node + ", which is not connected");
  }
  const auto found = newest(job.id);
  const auto best = catalog_.newest(job.id, [](const Image&) { return true; });
  if (!found && best)
    return Error(ErrorCode::kUnavailable, "The images of job " + job.spec.name + " are in the vault of " +
                                              best->node + ", which is not connected");
  if (!found)
    return Error(ErrorCode::kNotFound,
                 "There is no image of job " + job.spec.name + ": `snapshot` takes one");
  // Only an order may go back further than it must.
  if (wish.verb != "restore" && image_text(*best) != image_text(*found))
    return Error(
        ErrorCode::kUnavailable,
        fmt::format("Job {} rests in {}, and {} is not connected; `restore {}` starts it from an older image",
                    job.spec.name, image_text(*best), best->node, image_text(*found)));
  return *found;
}

// A GPU whose node can read the image: asked before anything ends for it.
control::Task<Result<Place>> ImageTable::choose_place(JobId id, Image image, RestoreWish wish) {
  const Job* job = parts_.jobs.find(id);
  if (job == nullptr) co_return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
  CKPT_CO_TRY(plan, parts_.service.plan_restore(*job, image, wish.to, wish.hints));
  if (!plan.to) co_return Error(ErrorCode::kUnavailable, plan.reason);
  std::string obstacle;
  std::set<std::string> asked;
  for (const Candidate& candidate : plan.candidates) {
    // A node's own vault is that node's, whoever reads it.
    const std::string node = image.folder.empty() ? image.node : candidate.place.node;
    if (!candidate.suitable || asked.size() >= kMaxTargetsAsked) break;
    if (!asked.insert(node).second) continue;
    wire::VaultOrder order;
    order.act = wire::VaultAct::kList;
    order.folder = image.folder;
    order.vault_job = image.vault_job;
    order.of_job = true;
    const auto listed = co_await parts_.nodes.call(node, order, kRequestListing);
    if (listed && catalog_.is_whole_at(node, image)) co_return candidate.place;
    obstacle += (obstacle.empty() ? "" : "; ") + node + ": " +
                (listed ? "it has no whole image " + image_text(image) : listed.assume_error().to_string());
  }
  co_return Error(ErrorCode::kUnavailable,
                  "No node with room can read " + image_text(image) + ": " + obstacle);
}

Result<TaskId> ImageTable::begin_operation(JobId id, ImageOperation operation) {
  const Job* job = parts_.jobs.find(id);
  if (job->operation) close_task(id, Error(ErrorCode::kAborted, "Another order took its place"), 1);
  operation.fenced = highest_known(*job);
  operation.deadline_ms = wall_clock_ms() + parts_.config.image_timeout_ms;
  Job changed = *job;
  if (operation.stage == OperationStage::kEnding) {
    changed.fenced = operation.fenced;
    if (operation.goal == OperationGoal::kRunning) changed.state = JobState::kRestoring;
    changed.stop_requested = changed.stop_owed = false;
    changed.exit_code = -1;
  }
  const std::string verb = operation.verb;
  const bool taking = operation.stage == OperationStage::kTaking;
  changed.operation = std::move(operation);
  CKPT_TRYV(parts_.jobs.replace(std::move(changed)));
  fault_point(FaultPoint::kCoordinatorOperationDurable);
  vault_known_.erase(id);
  const TaskId task = tasks_.begin(verb, *job, taking ? "copying" : "ending").id;
  operation_tasks_[id] = task;
  drive(id);
  return task;
}

control::Task<Result<TaskId>> ImageTable::begin_restore(JobId id, RestoreWish wish) {
  CKPT_CO_TRYV(may_restore(id, wish));
  CKPT_CO_TRY(image, image_for(*parts_.jobs.find(id), wish));
  CKPT_CO_TRY(place, co_await choose_place(id, image, wish));
  if (const Job* now = parts_.jobs.find(id); wish.force && now != nullptr && now->operation &&
                                             now->operation->stage == OperationStage::kTaking &&
                                             parts_.nodes.connected(now->node())) {
    CKPT_CO_TRYV(co_await cancel_parking(id, "An image of the job is restored by force"));
  }
  CKPT_CO_TRYV(may_restore(id, wish));  // much may have happened meanwhile
  const Job* job = parts_.jobs.find(id);
  CKPT_CO_TRY(still, parts_.service.plan_restore(*job, image, to_text(place), wish.hints));
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
  co_return begin_operation(id, std::move(operation));
}

control::Task<Result<TaskId>> ImageTable::begin_parking(JobId id, Destination to, ImageOperation operation) {
  CKPT_CO_TRYV(co_await wait_until_free(id));
  const Job* job = parts_.jobs.find(id);
  operation.goal = OperationGoal::kParked;
  operation.stage = OperationStage::kTaking;
  operation.image.node = vault_node(*job, to);
  operation.image.folder = to.folder;
  operation.image.vault_job = catalog_.vault_job_of(*job);
  operation.image.job = id;
  operation.image.version = catalog_.last_version(operation.image.node, to.folder, operation.image.vault_job);
  co_return begin_operation(id, std::move(operation));
}

control::Task<Result<TaskId>> ImageTable::begin_suspend(JobId id, std::string to) {
  const Job* job = parts_.jobs.find(id);
  if (job == nullptr) co_return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
  CKPT_CO_TRY(destination, destination_of(to));
  if (to.empty() && job->protection) destination = kept_at(*job->protection);
  if (job->state == JobState::kParked && !job->operation) {
    // Already; but now it stays until somebody resumes it.
    Job changed = *job;
    changed.resumes_itself = false;
    CKPT_CO_TRYV(parts_.jobs.replace(std::move(changed)));
    const TaskId done = tasks_.begin("suspend", *parts_.jobs.find(id), "").id;
    tasks_.finish(done);
    co_return done;
  }
  ImageOperation operation;
  operation.verb = "suspend";
  operation.why = "suspended";
  operation.by_user = true;
  co_return co_await begin_parking(id, std::move(destination), std::move(operation));
}

// ---- the port for other parts of the coordinator ----

control::Task<Result<void>> ImageTable::park(JobId id, bool snapshot, std::string why) {
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
    RestoreWish wish;
    wish.verb = "park";
    wish.by_user = false;
    CKPT_CO_TRYV(may_restore(id, wish));
    const auto image = catalog_.newest(id, [](const Image&) { return true; });
    if (!image) co_return Error(ErrorCode::kNotFound, "There is no image of job " + job->spec.name);
    operation.goal = OperationGoal::kParked;
    operation.image = *image;
    operation.gone = !holds_gpu(job->state);
    if (operation.gone) operation.ended_ms = job->ended_ms;
    CKPT_CO_TRY(begun, begin_operation(id, std::move(operation)));
    task = begun;
  }
  co_await tasks_.wait(task, operation_deadline() + kForItsEnd);
  const ImageTask* done = tasks_.find(task);
  if (done == nullptr || done->open)
    co_return Error(ErrorCode::kTimedOut, "Parking " + job_text(id) + " has not ended");
  if (done->error) co_return *done->error;
  co_return ok();
}

control::Task<Result<Restored>> ImageTable::restore(JobId id, std::optional<Place> to, std::string why) {
  RestoreWish wish;
  wish.why = std::move(why);
  wish.by_user = false;
  if (to) wish.to = to_text(*to);
  CKPT_CO_TRY(task, co_await begin_restore(id, std::move(wish)));
  co_await tasks_.wait(task, operation_deadline() + kForItsEnd);
  const ImageTask* done = tasks_.find(task);
  if (done == nullptr || done->open)
    co_return Error(ErrorCode::kTimedOut, "Restoring " + job_text(id) + " has not ended");
  if (done->error) co_return *done->error;
  co_return *done->restored;
}

// ---- parked jobs come back ----

std::vector<ParkedJob> ImageTable::resting() const {
  std::vector<ParkedJob> found;
  for (const Job& job : parts_.jobs.live()) {
    const JobId id = job.id;
    if (job.state != JobState::kParked || !job.resumes_itself || job.operation) continue;
    RestoreWish wish;
    wish.verb = "resume";
    const auto image = image_for(job, wish);
    if (!image) continue;
    const auto backoff = backoffs_.find(id);
    const bool waits = backoff != backoffs_.end() && steady_clock::now() < backoff->second.until;
    ParkedJob& entry = found.emplace_back();
    entry.id = id;
    entry.parked_ms = job.parked_ms;
    entry.ready = !waits && wall_clock_ms() - job.parked_ms >= kRestMs;
    entry.request = parts_.service.request_for(job, image.assume_value());
  }
  return found;
}

// One after the other: what one takes is known before the next is looked at.
void ImageTable::resume_parked() {
  if (!resuming_.empty() || (room_is_made_ && room_is_made_())) return;
  for (const Job& job : parts_.jobs.live()) {
    if (job.operation && job.operation->verb == "resume") return;
  }
  std::vector<ParkedJob> waiting = resting();
  if (waiting.empty()) return;
  auto next = next_to_resume(std::move(waiting), parts_.service.gpu_views());
  if (!next) return;
  PlanHints claims;
  claims.promised = std::move(next->claims);
  resuming_.insert(next->id);
  control::spawn(parts_.executor, "resuming " + job_text(next->id), resume_one(next->id, std::move(claims)));
}

control::Task<> ImageTable::resume_one(JobId id, PlanHints claims) {
  RestoreWish wish;
  wish.hints = std::move(claims);
  wish.verb = "resume";
  wish.why = "there is room";
  wish.by_user = false;
  const auto begun = co_await begin_restore(id, std::move(wish));
  if (begun) co_await tasks_.wait(begun.assume_value(), operation_deadline() + kForItsEnd);
  resuming_.erase(id);
  const ImageTask* task = begun ? tasks_.find(begun.assume_value()) : nullptr;
  if (task != nullptr && !task->error) {
    backoffs_.erase(id);
    co_return;
  }
  Backoff& backoff = backoffs_[id];
  ++backoff.failures;
  backoff.until = steady_clock::now() + std::chrono::seconds(1U << std::min(backoff.failures, 6U));
  const Job* job = parts_.jobs.find(id);
  if (job == nullptr || job->state != JobState::kParked || backoff.failures < kMaxResumeFailures) co_return;
  backoffs_.erase(id);
  Job changed = *job;
  changed.resumes_itself = false;
  parts_.events.add("job-parked",
                    fmt::format("job {} ({}) could not be resumed {} times: it stays parked until `resume`",
                                job->spec.name, job_text(id), kMaxResumeFailures),
                    {}, id);
  if (auto stored = parts_.jobs.replace(std::move(changed)); !stored)
    spdlog::error("job {} was not stored: {}", job_text(id), stored.assume_error().to_string());
}

}  // namespace ckpt::coordinator
