// SPDX-License-Identifier: Apache-2.0
#include "coordinator/images/operations/operation_runner.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>

#include "coordinator/images/wait_for_change.h"
#include "libckpt/base/clock.h"
#include "libckpt/base/fault.h"
#include "libckpt/net/control/at_once.h"
#include "libckpt/net/control/spawn.h"
#include "libckpt/protocol/wire/job_messages.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::coordinator {
namespace {

constexpr std::chrono::minutes kLongestStart{30};
constexpr std::chrono::seconds kListing{30};
constexpr std::chrono::seconds kEnding{10};

// Checks whether the effect of an order is unknown, or the node still runs the same order from before a
// restart. The order is then sent again.
bool is_unknown(const Error& error) {
  return error.code() == ErrorCode::kUnavailable || error.code() == ErrorCode::kTimedOut;
}

ImageId id_of(const Image& image) {
  ImageId id;
  id.job = image.job;
  id.version = image.version;
  id.where = image.folder.empty() ? image.node : image.folder;
  return id;
}

}  // namespace

// Subscribes to steps of jobs, because a rule among ranks may also begin an operation.
OperationRunner::OperationRunner(Dependencies deps) : deps_(std::move(deps)) {
  deps_.job_runner.stepped().subscribe([this](JobId id) {
    const Job* job = deps_.jobs.find(id);
    if (job != nullptr && job->operation && !deps_.open.is_driven(id))
      control::asio::post(deps_.executor, [this, id] { show_and_drive(id); });
  });
}

void OperationRunner::show_and_drive(JobId id) {
  const Job* job = deps_.jobs.find(id);
  if (job == nullptr || !job->operation || deps_.open.is_driven(id)) return;
  deps_.open.show(id, deps_.tasks.begin(job->operation->verb, *job, "ending").id);
  drive(id);
}

void OperationRunner::start() {
  for (const auto& [id, job] : deps_.jobs.all()) {
    if (job.operation) drive(id);
  }
}

Result<TaskId> OperationRunner::begin(JobId id, ImageOperation operation) {
  std::vector<Begun> one(1);
  one.front().job = id;
  one.front().operation = std::move(operation);
  CKPT_TRY(begun, begin_all(std::move(one)));
  return begun.front().task;
}

Result<std::vector<OperationRunner::Begun>> OperationRunner::begin_all(std::vector<Begun> operations) {
  std::vector<JobRunner::Event> events;
  events.reserve(operations.size());
  for (const Begun& begun : operations)
    events.push_back({begun.job, lifecycle::OperationBegun{begun.operation}});
  CKPT_TRYV(deps_.job_runner.order_all(std::move(events)));
  for (Begun& begun : operations) {
    deps_.open.set_listed(begun.job, false);
    const bool takes = begun.operation.stage == OperationStage::kTaking;
    const Job& job = *deps_.jobs.find(begun.job);
    begun.task = deps_.tasks.begin(begun.operation.verb, job, takes ? "copying" : "ending").id;
    deps_.open.show(begun.job, begun.task);
  }
  for (const Begun& begun : operations) drive(begun.job);
  return operations;
}

void OperationRunner::drive(JobId id) {
  if (deps_.open.begin_to_drive(id))
    control::spawn(deps_.executor, "an operation on the images of " + job_text(id), carry_on(id));
}

control::Task<> OperationRunner::carry_on(JobId id) {
  while (true) {
    const Job* job = deps_.jobs.find(id);
    if (job == nullptr || !job->operation) break;
    if (deps_.jobs.is_refused(id)) {  // no order is sent before its row is stored
      co_await wait_for_change(deps_.jobs);
      continue;
    }
    const OperationStep step = next_step(*job->operation, view_of(*job));
    spdlog::debug("{} of {}: {}", job->operation->verb, job_text(id), to_string(step));
    if (step == OperationStep::kWait || step == OperationStep::kAskCheckpointStore) close_expired_task(id);
    co_await perform(id, step);
  }
  deps_.open.end_to_drive(id);
}

OperationView OperationRunner::view_of(const Job& job) const {
  const ImageOperation& operation = *job.operation;
  const Segment& last = job.segments.back();
  OperationView view;
  const Node* source = deps_.nodes.find(last.node);
  view.source_connected = source != nullptr && source->connected();
  if (operation.stage == OperationStage::kTaking && source != nullptr) {
    const wire::JobInstance* instance = source->find(job.id, last.incarnation);
    view.instance_alive = instance != nullptr && !is_over(instance->phase);
  }
  if (operation.stage == OperationStage::kEnding) {
    view.instance_alive = lifecycle::has_instance_somewhere(deps_.view, job.id, operation.fenced);
    for (const std::string& name : job.unfenced_nodes)
      (deps_.nodes.connected(name) ? view.instance_alive : view.may_live_away) = true;
  }
  view.expired = deps_.open.is_expired(job.id);
  view.checkpoint_store_known = deps_.open.is_listed(job.id);
  const Image& image = operation.image;
  view.image_newer = deps_.catalog.last_version(image.node, image.folder, image.image_job) > image.version;
  const Node* target = deps_.nodes.find(operation.to_node);
  view.target_connected = target != nullptr && target->connected();
  if (operation.stage == OperationStage::kStarting && view.target_connected) {
    const wire::JobInstance* instance = target->find(job.id, last.incarnation);
    // The start is ordered again until the node reports the image from which the instance runs. A repeated
    // order starts nothing twice, and its answer contains the image.
    view.target_runs = instance != nullptr && instance->phase == wire::JobPhase::kRunning &&
                       deps_.reports.restore_of(job) != nullptr;
  }
  return view;
}

control::Task<> OperationRunner::perform(JobId id, OperationStep step) {
  switch (step) {
    case OperationStep::kWait:
      co_await wait_for_change(deps_.jobs);
      co_return;
    case OperationStep::kTakeSnapshot:
      co_await take_last_snapshot(id);
      co_return;
    case OperationStep::kCancel:
      co_await cancel_last_snapshot(id);
      co_return;
    case OperationStep::kAskCheckpointStore:
      co_await ask_checkpoint_store(id);
      co_return;
    case OperationStep::kEnd:
      co_await end_instances(id);
      co_return;
    case OperationStep::kStart:
      co_await start_restored(id);
      co_return;
    case OperationStep::kAbandon:
    case OperationStep::kEnded:
    case OperationStep::kRuns:
    case OperationStep::kGiveUp:
      break;
  }
  if (step == OperationStep::kEnded) fault_point(FaultPoint::kCoordinatorInstanceEnded);
  lifecycle::JobEvent event = event_of(id, step);
  co_await record(id, std::move(event));
}

// Returns the event of a step that needs no answer from a node.
lifecycle::JobEvent OperationRunner::event_of(JobId id, OperationStep step) const {
  const Job& job = *deps_.jobs.find(id);
  if (step == OperationStep::kAbandon)
    return lifecycle::NotParked{Error(ErrorCode::kRefused, "The job ended before its image was taken")};
  if (step == OperationStep::kRuns) return runs_from_image(job);
  if (step == OperationStep::kGiveUp) return lifecycle::NotStarted{deps_.open.why_given_up(job)};
  if (job.operation->stage == OperationStage::kTaking) return image_stored(job);
  return lifecycle::InstancesEnded{};
}

control::Task<> OperationRunner::record(JobId id, lifecycle::JobEvent event) {
  const bool runs = std::holds_alternative<lifecycle::RunsFromImage>(event);
  if (runs) fault_point(FaultPoint::kCoordinatorStarted);
  if (auto recorded = deps_.job_runner.order(id, std::move(event)); !recorded) {
    spdlog::error("an operation on the images of {} waits, since it cannot be recorded: {}", job_text(id),
                  recorded.error().to_string());
    co_return co_await wait_for_change(deps_.jobs);
  }
  if (runs) deps_.reports.erase_restore(id);
}

lifecycle::ImageStored OperationRunner::image_stored(const Job& job) const {
  const Image before = job.operation->image;
  lifecycle::ImageStored stored;
  stored.image = deps_.catalog.newest(job.id, [&](const Image& image) {
    return image.folder == before.folder && image.image_job == before.image_job &&
           image.version > before.version && (!image.folder.empty() || image.node == before.node);
  });
  if (stored.image) stored.facts = deps_.reports.facts_of(job, before.node, before.folder);
  return stored;
}

// Builds the event from the node's report. The node uses an older image if the ordered image proves to be
// damaged while it is read.
lifecycle::RunsFromImage OperationRunner::runs_from_image(const Job& job) const {
  const ImageOperation& operation = *job.operation;
  lifecycle::RunsFromImage runs;
  Restored& restored = runs.restored;
  restored.suspect = operation.image.suspect;
  restored.image = operation.image;
  restored.lost_ms = operation.lost_ms;
  restored.place = Place(operation.to_node, operation.to_gpu);
  restored.incarnation = job.incarnation;
  const wire::RestoreReport* used = deps_.reports.restore_of(job);
  if (used != nullptr) runs.fill_ns = used->fill_ns;
  const bool same = used == nullptr || used->folder != operation.image.folder ||
                    used->image_job != operation.image.image_job || used->version >= operation.image.version;
  if (same) return runs;
  restored.image.version = used->version;
  restored.image.barrier_ms = used->barrier_ms;
  if (const auto listed = deps_.catalog.find(id_of(restored.image))) restored.image = listed->image;
  restored.lost_ms = std::max<std::int64_t>(0, operation.ended_ms - used->barrier_ms);
  restored.note = fmt::format(
      "{} is damaged, an older image was used: {}", image_text(operation.image),
      used->skipped.empty() ? "its node does not report how the image is damaged" : used->skipped);
  return runs;
}

// Closes the task of an operation whose deadline has passed. The client waits no longer, although the
// operation continues once the node or checkpoint store is back.
void OperationRunner::close_expired_task(JobId id) {
  const Job* job = deps_.jobs.find(id);
  if (deps_.open.task_id(id) == 0 || !deps_.open.is_expired(id)) return;
  const bool away = !deps_.nodes.connected(job->node());
  deps_.open.close(
      id,
      Error(ErrorCode::kTimedOut, fmt::format("The outcome of the {} of {} is not known yet: the operation "
                                              "waits for node {}; `describe` shows its progress",
                                              job->operation->verb, job->spec.name,
                                              away ? job->node() : job->operation->image.node)),
      kImageExitUnknown);
}

// ---- Parking in an image ----

control::Task<> OperationRunner::take_last_snapshot(JobId id) {
  const Job* job = deps_.jobs.find(id);
  Destination to;
  to.folder = job->operation->image.folder;
  if (to.folder.empty()) to.node = job->operation->image.node;
  auto order = deps_.snapshots.order_of(*job, to, true);
  if (!order) {
    spdlog::error("no image of {} was ordered: {}", job_text(id), order.error().to_string());
    co_return co_await wait_for_change(deps_.jobs);
  }
  const std::string node = job->node();
  const std::string owner = checkpoint_store_node(*job, to);
  const SnapshotOrders::Outcome outcome = co_await deps_.snapshots.give(
      *std::move(order), RunningSnapshot(deps_.open.task_id(id), node, owner), deps_.open.time_left(id));
  if (outcome.checkpoint_store == SnapshotOrders::CheckpointStore::kAway)
    deps_.open.checkpoint_store_is_away(id);
  if (outcome.checkpoint_store == SnapshotOrders::CheckpointStore::kGranted)
    deps_.open.checkpoint_store_answers(id);
  job = deps_.jobs.find(id);
  if (job == nullptr || !job->operation || job->operation->stage != OperationStage::kTaking) co_return;
  if (outcome.captured) {
    // The instance's end is reported separately, possibly after this answer. Then the checkpoint store is
    // queried for its list.
    if (view_of(*job).instance_alive) co_await wait_for_change(deps_.jobs);
    co_return;
  }
  const Error& error = outcome.captured.error();
  const bool given_up = !job->operation->cancelled.empty();
  if (is_unknown(error) && !outcome.failed) {
    if (!given_up) co_await wait_for_change(deps_.jobs);
    co_return;
  }
  // The instance has ended in the meantime, possibly through an order from before a restart. The checkpoint
  // store shows whether its image exists.
  if (!view_of(*job).instance_alive) co_return;
  const Error reason = given_up ? deps_.open.why_given_up(*job) : error;
  lifecycle::JobEvent event = lifecycle::NotParked{reason};
  co_await record(id, std::move(event));
}

// Cancels the last snapshot. Once the node has reported that no snapshot of the job is in progress, the job
// continues to run.
control::Task<> OperationRunner::cancel_last_snapshot(JobId id) {
  const Job* job = deps_.jobs.find(id);
  const auto sent = co_await deps_.snapshots.give_up(id, job->node(), job->incarnation);
  job = deps_.jobs.find(id);
  if (job == nullptr || !job->operation || job->operation->stage != OperationStage::kTaking) co_return;
  const bool free = sent || sent.error().code() == ErrorCode::kNotFound;
  if (!free || !view_of(*job).instance_alive) co_return co_await wait_for_change(deps_.jobs);
  lifecycle::JobEvent event = lifecycle::NotParked{deps_.open.why_given_up(*job)};
  co_await record(id, std::move(event));
}

control::Task<> OperationRunner::ask_checkpoint_store(JobId id) {
  const Image image = deps_.jobs.find(id)->operation->image;
  wire::CheckpointStoreOrder order;
  order.act = wire::CheckpointStoreAct::kList;
  order.folder = image.folder;
  order.image_job = image.image_job;
  order.of_job = true;
  const auto listed = co_await deps_.calls.call(image.node, order, kListing);
  if (listed) {
    deps_.open.set_listed(id, true);
    co_return;
  }
  co_await wait_for_change(deps_.jobs);
}

// ---- Starting from an image ----

control::Task<> OperationRunner::end_instance(JobId id, std::string node, Incarnation up_to) {
  wire::StopJob order;
  order.job = id;
  order.incarnation = up_to;
  if (auto sent = co_await deps_.calls.call(node, order, kEnding); !sent)
    spdlog::warn("cannot end the remaining processes of {} on {}: {}", job_text(id), node,
                 sent.error().to_string());
}

control::Task<> OperationRunner::end_instances(JobId id) {
  const Incarnation up_to = deps_.jobs.find(id)->operation->fenced;
  std::set<std::string> nodes;
  for (const lifecycle::SeenInstance& seen : deps_.view.seen(id)) {
    if (seen.connected && seen.instance->incarnation <= up_to && !is_over(seen.instance->phase))
      nodes.insert(seen.node);
  }
  std::vector<control::Task<>> ends;
  for (const std::string& node : nodes) ends.push_back(end_instance(id, node, up_to));
  co_await control::at_once(deps_.executor, "the end of an instance", std::move(ends));
  const Job* left = deps_.jobs.find(id);
  std::vector<control::Task<>> proofs;
  for (const std::string& node : left == nullptr ? std::set<std::string>() : left->unfenced_nodes) {
    if (deps_.nodes.connected(node)) proofs.push_back(deps_.orders.prove(id, node));
  }
  co_await control::at_once(deps_.executor, "a proof that no process remains", std::move(proofs));
  const Job* job = deps_.jobs.find(id);
  if (job != nullptr && job->operation && view_of(*job).instance_alive) co_await wait_for_change(deps_.jobs);
}

// Checks whether an earlier order started the instance although the image cannot be read now. Only the node
// knows this. Until the node has answered, the job must not be shown as parked.
control::Task<Result<void>> OperationRunner::was_started(ImageOperation operation, wire::RestoreImage order,
                                                         Error error) {
  order.asks_only = true;
  auto answer = co_await deps_.calls.call(operation.to_node, std::move(order), kListing);
  if (answer || answer.error().code() != ErrorCode::kNotFound) co_return answer;
  co_return Error(ErrorCode::kRefused, "The checkpoint store of " + operation.image.node + " cannot be read")
      .caused_by(std::move(error));
}

bool OperationRunner::is_still_starting(JobId id, const ImageOperation& operation) const {
  const Job* job = deps_.jobs.find(id);
  return job != nullptr && job->operation && job->operation->stage == OperationStage::kStarting &&
         job->operation->fenced == operation.fenced && !job->operation->stops;
}

control::Task<Result<void>> OperationRunner::order_start(ImageOperation operation, wire::RestoreImage order) {
  if (order.folder.empty()) {
    wire::GrantCheckpointStore request;
    request.image_job = order.image_job;
    auto granted = co_await deps_.grants.ask(operation.image.node, operation.to_node, std::move(request));
    if (!granted) co_return co_await was_started(operation, std::move(order), std::move(granted).error());
    order.peer = *std::move(granted);
  }
  const wire::CheckpointStorePeer peer = order.peer;
  // After the start was canceled, no start may be ordered, because the node may already have answered that it
  // has no instance.
  Result<void> started = Error(ErrorCode::kAborted, "The start was cancelled");
  if (is_still_starting(order.spec.job, operation))
    started = co_await deps_.calls.call(operation.to_node, std::move(order), kLongestStart);
  co_await deps_.grants.give_back(peer);
  co_return started;
}

control::Task<> OperationRunner::start_restored(JobId id) {
  const Job* job = deps_.jobs.find(id);
  const ImageOperation operation = *job->operation;
  wire::RestoreImage order;
  order.spec = job->spec;
  order.spec.incarnation = job->incarnation;
  auto spec = co_await deps_.rendezvous.complete(order.spec);
  if (!is_still_starting(id, operation)) co_return;
  if (!spec) {
    spdlog::info("rank {} waits for rank 0 of its job: {}", job_text(id), spec.error().to_string());
    co_return co_await wait_for_change(deps_.jobs);
  }
  order.spec = *std::move(spec);
  for (wire::RankSpec& rank : order.spec.ranks) rank.gpu_index = operation.to_gpu;
  order.folder = operation.image.folder;
  order.image_job = operation.image.image_job;
  order.version = operation.image.version;
  const auto started = co_await order_start(operation, std::move(order));
  if (!is_still_starting(id, operation)) co_return;
  if (!started && is_unknown(started.error())) {
    spdlog::warn("starting {} from {}: {}", job_text(id), image_text(operation.image),
                 started.error().to_string());
    co_return co_await wait_for_change(deps_.jobs);
  }
  lifecycle::JobEvent event = runs_from_image(*deps_.jobs.find(id));
  if (!started) event = lifecycle::NotStarted{started.error()};
  co_await record(id, std::move(event));
}

}  // namespace ckpt::coordinator
