// SPDX-License-Identifier: Apache-2.0
// Carries operations on jobs' images from stage to stage (image_operation.h says what comes next).
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "coordinator/images/image_table.h"
#include "libckpt/base/clock.h"
#include "libckpt/base/fault.h"
#include "libckpt/net/control/spawn.h"
#include "libckpt/protocol/wire/job_messages.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::coordinator {
namespace {

constexpr std::chrono::minutes kOrderedSnapshotLimit{60};
constexpr std::chrono::minutes kLongestStart{30};
constexpr std::chrono::seconds kListing{30};
constexpr std::chrono::seconds kEnding{10};

// Exit codes of the command that asked (docs/design.md §10).
constexpr int kExitFailed = 1;
constexpr int kExitInterrupted = 2;
constexpr int kExitRestored = 3;

ImageId id_of(const Image& image) {
  ImageId id;
  id.job = image.job;
  id.version = image.version;
  id.where = image.folder.empty() ? image.node : image.folder;
  return id;
}

std::string label_of(const Job& job) {
  return job.spec.name + " (" + job_text(job.id) + ")";
}

// Its effect is not known, or the node is still at the same order of before a restart: it is ordered again.
bool is_unknown(const Error& error) {
  return error.code() == ErrorCode::kUnavailable || error.code() == ErrorCode::kTimedOut;
}

bool has_instance(const Node& node, JobId job, Incarnation up_to) {
  return std::any_of(node.instances.begin(), node.instances.end(), [&](const wire::JobInstance& instance) {
    return instance.job == job && instance.incarnation <= up_to && !is_over(instance.phase);
  });
}

}  // namespace

void ImageTable::drive(JobId id) {
  deadlines_[id] = operation_deadline();
  vault_away_.erase(id);
  if (driven_.insert(id).second)
    control::spawn(parts_.executor, "an operation on the images of " + job_text(id), carry_on(id));
}

control::Task<> ImageTable::carry_on(JobId id) {
  while (true) {
    const Job* job = parts_.jobs.find(id);
    if (job == nullptr || !job->operation) break;
    const OperationStep step = next_step(*job->operation, view_of(*job));
    spdlog::debug("{} of {}: {}", job->operation->verb, job_text(id), to_string(step));
    if (step == OperationStep::kWait || step == OperationStep::kAskVault) close_expired_task(id);
    co_await perform(id, step);
  }
  driven_.erase(id);
  deadlines_.erase(id);
  vault_away_.erase(id);
  vault_known_.erase(id);
}

OperationView ImageTable::view_of(const Job& job) const {
  const ImageOperation& operation = *job.operation;
  const Segment& last = job.segments.back();
  OperationView view;
  const Node* source = parts_.nodes.find(last.node);
  view.source_connected = source != nullptr && source->connected();
  if (operation.stage == OperationStage::kTaking && source != nullptr) {
    const wire::JobInstance* instance = source->find(job.id, last.incarnation);
    view.instance_alive = instance != nullptr && !is_over(instance->phase);
  }
  if (operation.stage == OperationStage::kEnding) {
    for (const auto& [name, node] : parts_.nodes.all())
      view.instance_alive |= node.connected() && has_instance(node, job.id, operation.fenced);
  }
  view.expired = is_expired(job.id);
  view.vault_known = vault_known_.contains(job.id);
  const Image& image = operation.image;
  view.image_newer = catalog_.last_version(image.node, image.folder, image.vault_job) > image.version;
  const Node* target = parts_.nodes.find(operation.to_node);
  view.target_connected = target != nullptr && target->connected();
  if (operation.stage == OperationStage::kStarting && view.target_connected) {
    const wire::JobInstance* instance = target->find(job.id, last.incarnation);
    // Until it is said what it runs from it is ordered again, which starts nothing twice and is answered with
    // that.
    view.target_runs = instance != nullptr && instance->phase == wire::JobPhase::kRunning &&
                       restore_report_of(job) != nullptr;
  }
  return view;
}

control::Task<> ImageTable::perform(JobId id, OperationStep step) {
  Result<void> recorded = ok();
  switch (step) {
    case OperationStep::kWait:
      co_await wait_for_news();
      co_return;
    case OperationStep::kTakeSnapshot:
      co_await take_last_snapshot(id);
      co_return;
    case OperationStep::kCancel:
      co_await cancel_last_snapshot(id);
      co_return;
    case OperationStep::kAskVault:
      co_await ask_vault(id);
      co_return;
    case OperationStep::kEnd:
      co_await end_instances(id);
      co_return;
    case OperationStep::kStart:
      co_await start_restored(id);
      co_return;
    case OperationStep::kAbandon:
      recorded = abandon(id, Error(ErrorCode::kRefused, "The job ended before its image was taken"));
      break;
    case OperationStep::kEnded:
      recorded = ended(id);
      break;
    case OperationStep::kRuns:
      recorded = runs(id);
      break;
    case OperationStep::kGiveUp:
      recorded = not_started(id, why_given_up(*parts_.jobs.find(id)));
      break;
  }
  if (recorded) co_return;
  spdlog::error("an operation on the images of {} waits, since it cannot be recorded: {}", job_text(id),
                recorded.assume_error().to_string());
  co_await wait_for_news();
}

// ---- into an image ----

std::chrono::milliseconds ImageTable::time_left(JobId id) const {
  const auto deadline = deadlines_.find(id);
  if (deadline == deadlines_.end()) return kOrderedSnapshotLimit;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline->second - std::chrono::steady_clock::now());
  return std::clamp<std::chrono::milliseconds>(left, std::chrono::milliseconds(1), kOrderedSnapshotLimit);
}

control::Task<> ImageTable::take_last_snapshot(JobId id) {
  const Job* job = parts_.jobs.find(id);
  Destination to;
  to.folder = job->operation->image.folder;
  if (to.folder.empty()) to.node = job->operation->image.node;
  auto order = order_of(*job, to, true);
  if (!order) {
    spdlog::error("no image of {} is ordered: {}", job_text(id), order.assume_error().to_string());
    co_return co_await wait_for_news();
  }
  const std::string node = job->node();
  const std::string owner = vault_node(*job, to);
  const auto task = operation_tasks_.find(id);
  snapshots_[id] = Taking(task == operation_tasks_.end() ? 0 : task->second, node, owner);
  const auto answer = co_await order_snapshot(node, owner, std::move(order).assume_value(), time_left(id));
  const bool failed = snapshots_[id].failed;
  snapshots_.erase(id);
  job = parts_.jobs.find(id);
  if (job == nullptr || !job->operation || job->operation->stage != OperationStage::kTaking) co_return;
  if (answer) {
    // Its end is told beside the answer, and what the vault has is asked for.
    if (view_of(*job).instance_alive) co_await wait_for_news();
    co_return;
  }
  const Error& error = answer.assume_error();
  const bool given_up = !job->operation->cancelled.empty();
  if (is_unknown(error) && !failed) {
    if (!given_up) co_await wait_for_news();
    co_return;
  }
  // It has ended meanwhile, maybe for an order of before a restart: whether its image is there the vault
  // knows.
  if (!view_of(*job).instance_alive) co_return;
  if (auto recorded = abandon(id, given_up ? why_given_up(*job) : error); !recorded) co_await wait_for_news();
}

control::Task<> ImageTable::ask_vault(JobId id) {
  const Image image = parts_.jobs.find(id)->operation->image;
  wire::VaultOrder order;
  order.act = wire::VaultAct::kList;
  order.folder = image.folder;
  order.vault_job = image.vault_job;
  order.of_job = true;
  const auto listed = co_await parts_.nodes.call(image.node, order, kListing);
  if (listed) {
    vault_known_.insert(id);
    co_return;
  }
  co_await wait_for_news();
}

// The job goes on where it is, or has ended by itself.
Result<void> ImageTable::abandon(JobId id, const Error& why) {
  Job changed = *parts_.jobs.find(id);
  const ImageOperation operation = *changed.operation;
  changed.operation.reset();
  CKPT_TRYV(parts_.jobs.replace(std::move(changed)));
  const Job* job = parts_.jobs.find(id);
  parts_.events.add("snapshot-failed", "job " + label_of(*job) + " is not parked: " + why.to_string(),
                    job->node(), id);
  const bool interrupted = !operation.cancelled.empty() || why.code() == ErrorCode::kTimedOut;
  close_task(id, why, interrupted ? kExitInterrupted : kExitFailed);
  const Node* node = parts_.nodes.find(job->node());
  parts_.jobs.reconsider(id, node);
  parts_.jobs.not_parked(id, node, operation.stops);
  stop_after(id, operation);
  return ok();
}

Result<void> ImageTable::ended(JobId id) {
  fault_point(FaultPoint::kCoordinatorInstanceEnded);
  Job changed = *parts_.jobs.find(id);
  ImageOperation& operation = *changed.operation;
  if (operation.stage == OperationStage::kTaking) {
    const Image before = operation.image;
    const auto taken = catalog_.newest(id, [&](const Image& image) {
      return image.folder == before.folder && image.vault_job == before.vault_job &&
             image.version > before.version && (!image.folder.empty() || image.node == before.node);
    });
    if (!taken)
      return abandon(id, Error(ErrorCode::kCorrupt, "The job ended, and its last image is damaged"));
    operation.image = *taken;
    changed.snapshot = facts_of(changed, before.node, before.folder);
    operation.ended_ms = taken->barrier_ms;
    changed.fenced = operation.fenced;
  }
  if (operation.ended_ms == 0) operation.ended_ms = wall_clock_ms();
  operation.lost_ms = std::max<std::int64_t>(0, operation.ended_ms - operation.image.barrier_ms);
  if (operation.goal == OperationGoal::kRunning) return to_starting(std::move(changed));
  const std::string why = operation.why;
  return parked(std::move(changed), why);
}

Result<void> ImageTable::parked(Job job, const std::string& why) {
  const JobId id = job.id;
  const ImageOperation operation = *job.operation;
  job.operation.reset();
  job.state = JobState::kParked;
  job.phase = wire::JobPhase::kExited;
  job.reason = why;
  job.resumes_itself = !operation.by_user;
  job.ended_ms = operation.ended_ms;
  job.parked_ms = wall_clock_ms();
  const std::string node = job.node();
  const std::string text = fmt::format(
      "job {} rests in {}{}: {}", label_of(job), image_text(operation.image),
      operation.lost_ms > 0 ? fmt::format(", {} ms of work are lost", operation.lost_ms) : "", why);
  CKPT_TRYV(parts_.jobs.replace(std::move(job)));
  fault_point(FaultPoint::kCoordinatorParkedDurable);
  parts_.events.add("job-parked", text, node, id);
  if (ImageTask* task = operation_tasks_.contains(id) ? tasks_.find(operation_tasks_[id]) : nullptr)
    task->image = operation.image;
  close_task(id, std::nullopt, 0);
  stop_after(id, operation);
  return ok();
}

// ---- out of an image ----

control::Task<> ImageTable::end_instances(JobId id) {
  const Incarnation up_to = parts_.jobs.find(id)->operation->fenced;
  std::vector<std::string> nodes;
  for (const auto& [name, node] : parts_.nodes.all()) {
    if (node.connected() && has_instance(node, id, up_to)) nodes.push_back(name);
  }
  for (const std::string& node : nodes) {
    wire::StopJob order;
    order.job = id;
    order.incarnation = up_to;
    if (auto told = co_await parts_.nodes.call(node, order, kEnding); !told)
      spdlog::warn("ending what is left of {} on {}: {}", job_text(id), node,
                   told.assume_error().to_string());
  }
  const Job* job = parts_.jobs.find(id);
  if (job != nullptr && job->operation && view_of(*job).instance_alive) co_await wait_for_news();
}

Result<void> ImageTable::to_starting(Job job) {
  ImageOperation& operation = *job.operation;
  operation.stage = OperationStage::kStarting;
  job.incarnation = operation.fenced + 1;
  // What was written on a node that is away cannot be read, and would keep what is written from now on from
  // being read.
  std::erase_if(job.segments, [&](const Segment& s) { return !parts_.nodes.connected(s.node); });
  // One that was forgotten, and comes back, has none before.
  std::erase_if(job.segments, [](const Segment& s) { return s.incarnation == 0; });
  job.segments.emplace_back(operation.to_node, job.incarnation);
  for (JobRank& rank : job.ranks) {
    rank.place = Place(operation.to_node, operation.to_gpu);
    rank.pid = 0;
  }
  job.state = JobState::kRestoring;
  job.phase = wire::JobPhase::kStarting;
  job.reason.clear();
  job.movable = false;
  const JobId id = job.id;
  CKPT_TRYV(parts_.jobs.replace(std::move(job)));
  fault_point(FaultPoint::kCoordinatorStartDurable);
  if (operation_tasks_.contains(id)) tasks_.enter(operation_tasks_[id], "starting");
  return ok();
}

// The image cannot be read now. An order of before may have started the instance nevertheless: only its node
// knows, and until that has answered the job must not be said to rest.
control::Task<Result<void>> ImageTable::was_started(ImageOperation operation, wire::RestoreImage order,
                                                    Error why) {
  order.asks_only = true;
  auto answer = co_await parts_.nodes.call(operation.to_node, std::move(order), kListing);
  if (answer || answer.assume_error().code() != ErrorCode::kNotFound) co_return answer;
  co_return Error(ErrorCode::kRefused, "The vault of " + operation.image.node + " cannot be read")
      .caused_by(std::move(why));
}

control::Task<Result<void>> ImageTable::order_start(ImageOperation operation, wire::RestoreImage order) {
  if (order.folder.empty()) {
    wire::GrantVault request;
    request.vault_job = order.vault_job;
    auto granted = co_await ask_for_vault(operation.image.node, operation.to_node, std::move(request));
    if (!granted)
      co_return co_await was_started(operation, std::move(order), std::move(granted).assume_error());
    order.peer = std::move(granted).assume_value();
  }
  const wire::VaultPeer peer = order.peer;
  const auto started = co_await parts_.nodes.call(operation.to_node, std::move(order), kLongestStart);
  co_await give_vault_back(peer);
  co_return started;
}

control::Task<> ImageTable::start_restored(JobId id) {
  const Job* job = parts_.jobs.find(id);
  const ImageOperation operation = *job->operation;
  wire::RestoreImage order;
  order.spec = job->spec;
  order.spec.incarnation = job->incarnation;
  for (wire::RankSpec& rank : order.spec.ranks) rank.gpu_index = operation.to_gpu;
  order.folder = operation.image.folder;
  order.vault_job = operation.image.vault_job;
  order.version = operation.image.version;
  const auto started = co_await order_start(operation, std::move(order));
  job = parts_.jobs.find(id);
  const bool mine = job != nullptr && job->operation && job->operation->stage == OperationStage::kStarting &&
                    job->operation->fenced == operation.fenced;
  if (!mine) co_return;
  if (!started && is_unknown(started.assume_error())) {
    spdlog::warn("starting {} from {}: {}", job_text(id), image_text(operation.image),
                 started.assume_error().to_string());
    co_return co_await wait_for_news();
  }
  const Result<void> recorded = started ? runs(id) : not_started(id, started.assume_error());
  if (!recorded) co_await wait_for_news();
}

// As its node says: an image that proved damaged while it was read was not used, but an older one.
Restored ImageTable::restored_of(const Job& job) const {
  const ImageOperation& operation = *job.operation;
  Restored restored;
  restored.image = operation.image;
  restored.lost_ms = operation.lost_ms;
  restored.place = Place(operation.to_node, operation.to_gpu);
  restored.incarnation = job.incarnation;
  const wire::RestoreReport* used = restore_report_of(job);
  const bool same = used == nullptr || used->folder != operation.image.folder ||
                    used->vault_job != operation.image.vault_job || used->version >= operation.image.version;
  if (same) return restored;
  restored.image.version = used->version;
  restored.image.barrier_ms = used->barrier_ms;
  if (const auto listed = catalog_.find(id_of(restored.image))) restored.image = listed.assume_value().image;
  restored.lost_ms = std::max<std::int64_t>(0, operation.ended_ms - used->barrier_ms);
  restored.note = fmt::format("{} is damaged, an older image was used: {}", image_text(operation.image),
                              used->skipped.empty() ? "its node does not say how" : used->skipped);
  return restored;
}

Result<void> ImageTable::runs(JobId id) {
  fault_point(FaultPoint::kCoordinatorStarted);
  Job changed = *parts_.jobs.find(id);
  const ImageOperation operation = *changed.operation;
  const Restored restored = restored_of(changed);
  changed.operation.reset();
  changed.state = JobState::kRunning;
  changed.phase = wire::JobPhase::kRunning;
  changed.resumes_itself = false;
  changed.ended_ms = 0;
  changed.parked_ms = 0;
  CKPT_TRYV(parts_.jobs.replace(std::move(changed)));
  const Job* job = parts_.jobs.find(id);
  if (!restored.note.empty()) parts_.events.add("image-damaged", restored.note, operation.to_node, id);
  parts_.events.add(
      operation.verb == "resume" ? "job-resumed" : "job-restored",
      fmt::format("job {} goes on at {} from {} as incarnation {}, {} ms of work are lost{}{}",
                  label_of(*job), to_text(restored.place), image_text(restored.image), restored.incarnation,
                  restored.lost_ms, operation.why.empty() ? "" : ": " + operation.why,
                  restored.note.empty() ? "" : " (" + restored.note + ")"),
      operation.to_node, id);
  // What is lost since the image that a job rests in was said when it was parked; not so what an older one
  // lacks.
  const bool is_news = operation.verb == "restore" || !restored.note.empty();
  const bool lost = is_news && restored.lost_ms > 0;
  if (ImageTask* task = operation_tasks_.contains(id) ? tasks_.find(operation_tasks_[id]) : nullptr) {
    task->exit_code = lost ? kExitRestored : 0;
    task->image = restored.image;
    task->restored = restored;
    if (const wire::RestoreReport* used = restore_report_of(*job)) task->fill_ns = used->fill_ns;
  }
  restored_.erase(id);
  close_task(id, std::nullopt, 0);
  parts_.jobs.reconsider(id, parts_.nodes.find(operation.to_node));
  return ok();
}

// It rests in its image, as before.
Result<void> ImageTable::not_started(JobId id, const Error& why) {
  Job changed = *parts_.jobs.find(id);
  const ImageOperation operation = *changed.operation;
  changed.operation.reset();
  // One that was forgotten has no image of its own to rest in.
  changed.state = operation.image.job == id ? JobState::kParked : JobState::kFailed;
  changed.phase = wire::JobPhase::kExited;
  changed.resumes_itself = !operation.by_user;
  changed.reason = "it could not be started from " + image_text(operation.image) + ": " + why.to_string();
  changed.fenced = changed.incarnation;
  changed.ended_ms = operation.ended_ms;
  // An attempt that fails costs it its turn to nobody.
  if (changed.parked_ms == 0) changed.parked_ms = wall_clock_ms();
  if (changed.segments.size() > 1) changed.segments.pop_back();  // there is no log of it
  const std::string text =
      "job " + label_of(changed) + " rests in " + image_text(operation.image) + ": " + changed.reason;
  CKPT_TRYV(parts_.jobs.replace(std::move(changed)));
  parts_.events.add("restore-failed", text, operation.to_node, id);
  close_task(id, why, operation.stops ? kExitInterrupted : kExitFailed);
  stop_after(id, operation);
  return ok();
}

void ImageTable::close_task(JobId id, const std::optional<Error>& error, int exit_code) {
  const auto at = operation_tasks_.find(id);
  if (at == operation_tasks_.end()) return;
  const TaskId task = at->second;
  operation_tasks_.erase(at);
  if (error)
    tasks_.fail(task, *error, exit_code);
  else
    tasks_.finish(task);
}

}  // namespace ckpt::coordinator
