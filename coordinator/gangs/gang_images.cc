// SPDX-License-Identifier: Apache-2.0
#include "coordinator/gangs/gang_images.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "coordinator/images/wait_for_change.h"
#include "libckpt/base/fault.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::minutes kLongestEnd{10};
constexpr std::chrono::seconds kRemoving{30};
constexpr std::chrono::seconds kReleasing{30};

std::string name_and_id(const WholeJob& gang) {
  return gang.name + " (" + job_text(gang.id) + ")";
}

bool is_parked(const WholeJob& gang) {
  return std::all_of(gang.ranks.begin(), gang.ranks.end(),
                     [](const Job* rank) { return rank->state == JobState::kParked && !rank->operation; });
}

}  // namespace

GangImages::GangImages(Dependencies deps) : deps_(std::move(deps)) {
  deps_.reports.strayed().subscribe([this](const std::string& node, const wire::SnapshotReport& report) {
    control::spawn(deps_.executor, "releasing " + job_text(report.job), release(node, report));
  });
}

// Releases a rank whose coordinator was restarted or lost the connection. Nothing of the rank's set was
// recorded.
control::Task<> GangImages::release(std::string node, wire::SnapshotReport report) {
  wire::GatherRank order;
  order.job = report.job;
  order.incarnation = report.incarnation;
  order.set = report.set;
  order.act = wire::GatherAct::kGoOn;
  const auto sent = co_await deps_.calls.gather(std::move(node), std::move(order), kReleasing);
  if (!sent && sent.error().code() != ErrorCode::kNotFound)
    spdlog::warn("rank {} was not released, and continues when its own time limit expires: {}",
                 job_text(report.job), sent.error().to_string());
}

std::string GangImages::why_never(const WholeJob& gang) {
  for (const Job* rank : gang.ranks) {
    if (rank->spec.mode != MigrationMode::kCooperative)
      return fmt::format("rank {} is {}: only ranks that call ckpt_barrier can stop at a common step",
                         rank->rank_number(), to_string(rank->spec.mode));
  }
  return {};
}

std::string GangImages::why_none(const WholeJob& gang) const {
  if (gang.ranks.size() != gang.size)
    return fmt::format("only {} of its {} ranks are known", gang.ranks.size(), gang.size);
  if (std::string reason = why_never(gang); !reason.empty()) return reason;
  for (const Job* rank : gang.ranks) {
    if (const std::string reason = deps_.snapshots.why_none(*rank); !reason.empty())
      return fmt::format("no image of rank {} can be taken: {}", rank->rank_number(), reason);
  }
  return {};
}

// Waits until images of all ranks can be taken. A rank that is starting, or is paused for another reason,
// soon leaves that state.
control::Task<Result<void>> GangImages::wait_until_free(JobId id) {
  const auto gang = find_whole(deps_.jobs, id);
  if (!gang) co_return job_was_removed(id);
  std::vector<JobId> ranks;  // ids only, because a job may be removed while the loop waits for another job
  // If images of the gang can never be taken, no rank is waited for: why_none() below returns the reason.
  if (why_never(*gang).empty())
    for (const Job* rank : gang->ranks) ranks.push_back(rank->id);
  for (const JobId rank : ranks) {
    CKPT_CO_TRYV(co_await deps_.snapshots.wait_until_free(rank));
  }
  const auto now = find_whole(deps_.jobs, id);
  if (!now) co_return job_was_removed(id);
  const std::string reason = why_none(*now);
  if (reason.empty()) co_return ok();
  co_return Error(ErrorCode::kRefused, "No images of job " + now->name + " can be taken: " + reason);
}

control::Task<Result<GangImages::Captured>> GangImages::capture(JobId id, Destination to, bool holds,
                                                                TaskId task) {
  Result<Captured> last = job_was_removed(id);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto gang = find_whole(deps_.jobs, id);
    if (!gang) co_return job_was_removed(id);
    if (const std::string reason = why_none(*gang); !reason.empty())
      co_return Error(ErrorCode::kRefused, "No images of job " + gang->name + " can be taken: " + reason);
    GangSnapshot::Wish wish;
    CKPT_CO_TRY(number, deps_.numbers.next());
    wish.set = number;
    wish.to = to;
    wish.task = task;
    wish.holds = holds;
    wish.full = attempt > 0;
    const auto gang_snapshot = GangSnapshot::create(
        {deps_.nodes, deps_.calls, deps_.jobs, deps_.running, deps_.orders, deps_.catalog, deps_.executor},
        *gang, wish);
    auto captured = co_await gang_snapshot->run();
    deps_.jobs.changed().notify();
    if (captured) {
      auto set = record(*gang_snapshot, number, to, task);
      if (set) co_return Captured(gang_snapshot, *std::move(set));
      co_await gang_snapshot->release();
      co_return std::move(set).error();
    }
    co_await remove_set(id, number);
    last = std::move(captured).error();
    if (!gang_snapshot->may_work_in_full()) break;
    spdlog::warn("images of {} are taken again, with all memory: {}", job_text(id), last.error().to_string());
  }
  co_return last;
}

Result<GangSet> GangImages::record(const GangSnapshot& captured, std::uint64_t number, const Destination& to,
                                   TaskId task) {
  GangSet set;
  set.number = number;
  std::vector<Job> changed;
  wire::SnapshotReport sum;
  for (const GangSnapshot::Member& member : captured.members()) {
    const Job* job = deps_.jobs.find(member.job);
    if (job == nullptr) return job_was_removed(member.job);
    Job& now = changed.emplace_back(*job);
    now.snapshot = deps_.reports.facts_of(*job, member.owner, to.folder);
    const SnapshotFacts& facts = *now.snapshot;
    if (facts.image.version == 0 || facts.image.set != number)
      return Error(ErrorCode::kProtocol,
                   fmt::format("Node {} reports that the image of rank {} is complete, but names no image",
                               member.node, member.rank));
    set.images.push_back(facts.image);
    sum.pause_ns = std::max(sum.pause_ns, facts.pause_ns);
    sum.state_bytes += facts.image.state_bytes;
    sum.written_bytes += facts.written_bytes;
    sum.waited_bytes += facts.waited_bytes;
  }
  // The set is stored as the checkpoint stores list it. A later continuation compares its images with those
  // lists.
  const auto gang = find_whole(deps_.jobs, changed.front().whole());
  const auto listed = gang ? set_with(deps_.catalog, *gang, set.images.front()) : std::nullopt;
  if (!listed || listed->number != number)
    return Error(ErrorCode::kProtocol,
                 "The images of all ranks were taken, but some are missing in the nodes' lists");
  set = *listed;
  CKPT_TRYV(deps_.jobs.replace_all(std::move(changed)));
  if (ImageTask* shown = deps_.tasks.find(task)) {
    shown->images = set.images;
    shown->image = set.images.front();
    sum.barrier_ms = set.barrier_ms;
    shown->report = sum;
  }
  return set;
}

// Removes the images of a failed set, from which nothing can continue. Other sets that seem incomplete are
// kept, because their remaining images may be on a disconnected node.
control::Task<> GangImages::remove_set(JobId id, std::uint64_t number) {
  const auto gang = find_whole(deps_.jobs, id);
  const std::vector<Image> left = gang ? leftovers_of(deps_.catalog, *gang) : std::vector<Image>();
  for (const Image& image : left) {
    const Job* job = deps_.jobs.find(image.job);
    if (image.set != number || job == nullptr) continue;
    wire::CheckpointStoreOrder order;
    order.act = wire::CheckpointStoreAct::kRemoveVersion;
    order.folder = image.folder;
    order.image_job = image.image_job;
    order.version = image.version;
    order.of_job = true;
    const std::string node = image.folder.empty() ? image.node : job->node();
    if (auto removed = co_await deps_.calls.call(node, std::move(order), kRemoving); !removed)
      spdlog::warn("image {} of an incomplete set was not removed: {}", image_text(image),
                   removed.error().to_string());
  }
}

control::Task<Result<GangSet>> GangImages::snapshot(JobId gang, Destination to, TaskId task) {
  CKPT_CO_TRY(captured, co_await capture(gang, std::move(to), false, task));
  co_return std::move(captured.second);
}

// ---- Snapshots ----

control::Task<Result<TaskId>> GangImages::begin_snapshot(JobId id, std::string to) {
  CKPT_CO_TRY(destination, destination_of(to, deps_.nodes));
  const auto gang = find_whole(deps_.jobs, id);
  if (!gang) co_return job_was_removed(id);
  if (const auto& protection = gang->ranks.front()->protection; to.empty() && protection)
    destination = kept_at(*protection);
  CKPT_CO_TRYV(co_await wait_until_free(id));
  const std::string name = find_whole(deps_.jobs, id)->name;
  const TaskId task = deps_.tasks.begin("snapshot", id, name, "copying").id;
  control::spawn(deps_.executor, "images of " + job_text(id), run_snapshot(id, std::move(destination), task));
  co_return task;
}

control::Task<> GangImages::run_snapshot(JobId id, Destination to, TaskId task) {
  const auto captured = co_await snapshot(id, std::move(to), task);
  if (!captured) co_return fail(id, task, "snapshot", captured.error());
  const auto gang = find_whole(deps_.jobs, id);
  deps_.events.add("snapshot-taken",
                   fmt::format("images of all {} ranks of job {} were taken at one step",
                               captured->images.size(), gang ? name_and_id(*gang) : job_text(id)),
                   "", id);
  deps_.tasks.finish(task);
}

void GangImages::fail(JobId id, TaskId task, const std::string& verb, const Error& error) {
  const auto gang = find_whole(deps_.jobs, id);
  deps_.events.add(
      "snapshot-failed",
      fmt::format("{} of job {}: {}", verb, gang ? name_and_id(*gang) : job_text(id), error.to_string()), "",
      id);
  // A suspension that is recorded in the ranks continues, so its outcome is not known yet. Without a record
  // every rank continues to run.
  const bool is_decided = gang && std::any_of(gang->ranks.begin(), gang->ranks.end(),
                                              [](const Job* rank) { return rank->operation.has_value(); });
  const bool is_late = error.code() == ErrorCode::kTimedOut;
  deps_.tasks.fail(task, error,
                   is_decided ? kImageExitUnknown
                   : is_late  ? kImageExitInterrupted
                              : kImageExitFailed);
}

// ---- Suspensions ----

control::Task<Result<TaskId>> GangImages::begin_suspend(JobId id, std::string to) {
  const auto gang = find_whole(deps_.jobs, id);
  if (!gang) co_return job_was_removed(id);
  CKPT_CO_TRY(destination, destination_of(to, deps_.nodes));
  if (is_parked(*gang)) {
    const TaskId done = deps_.tasks.begin("suspend", id, gang->name, "").id;
    deps_.tasks.finish(done);
    co_return done;
  }
  CKPT_CO_TRYV(co_await wait_until_free(id));
  const std::string name = find_whole(deps_.jobs, id)->name;
  const TaskId task = deps_.tasks.begin("suspend", id, name, "copying").id;
  control::spawn(deps_.executor, "suspending " + job_text(id), run_suspend(id, std::move(destination), task));
  co_return task;
}

control::Task<> GangImages::run_suspend(JobId id, Destination to, TaskId task) {
  const auto done = co_await suspend(id, std::move(to), task);
  if (!done) co_return fail(id, task, "suspend", done.error());
  deps_.tasks.finish(task);
}

control::Task<Result<GangSet>> GangImages::suspend(JobId id, Destination to, TaskId task) {
  CKPT_CO_TRY(captured, co_await capture(id, std::move(to), true, task));
  fault_point(FaultPoint::kCoordinatorGangStored);
  deps_.tasks.enter(task, "ending");
  std::vector<OperationRunner::Begun> operations;
  for (std::size_t at = 0; at < captured.second.images.size(); ++at) {
    OperationRunner::Begun& begun = operations.emplace_back();
    begun.job = captured.first->members()[at].job;
    begun.operation.goal = OperationGoal::kParked;
    begun.operation.stage = OperationStage::kEnding;
    begun.operation.verb = "suspend";
    begun.operation.reason = "suspended with all ranks of its job";
    begun.operation.by_user = true;
    begun.operation.image = captured.second.images[at];
    begun.operation.ended_ms = captured.second.images[at].barrier_ms;  // the rank has been paused since its
                                                                       // barrier
  }
  if (auto begun = deps_.runner.begin_all(std::move(operations)); !begun) {
    co_await captured.first->release();
    co_return std::move(begun).error();
  }
  CKPT_CO_TRYV(co_await wait_until_parked(id));
  co_return std::move(captured.second);
}

control::Task<Result<void>> GangImages::wait_until_parked(JobId id) {
  const auto deadline = steady_clock::now() + kLongestEnd;
  while (true) {
    const auto gang = find_whole(deps_.jobs, id);
    if (!gang) co_return job_was_removed(id);
    const bool is_over = std::none_of(gang->ranks.begin(), gang->ranks.end(),
                                      [](const Job* rank) { return rank->operation.has_value(); });
    if (is_over && is_parked(*gang)) co_return ok();
    if (is_over) co_return Error(ErrorCode::kAborted, "The job was stopped in the meantime");
    if (steady_clock::now() >= deadline)
      co_return Error(ErrorCode::kTimedOut,
                      "Not all ranks of " + gang->name +
                          " have reported that they ended; the job is parked once all have ended");
    co_await wait_for_change(deps_.jobs);
  }
}

}  // namespace ckpt::coordinator
