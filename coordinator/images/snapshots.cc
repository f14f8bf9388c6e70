// SPDX-License-Identifier: Apache-2.0
#include "coordinator/images/snapshots.h"

#include "coordinator/images/wait_for_change.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::minutes kLongestSnapshot{60};
constexpr std::chrono::minutes kLongestTurn{10};   // the longest wait for the end of a migration or of
                                                   // another snapshot
constexpr std::chrono::seconds kLongestPause{10};  // the longest wait for a job that is starting, or is about
                                                   // to continue after a pause

// Exit codes of the requesting command (docs/design.md §10).
constexpr int kExitNoImage = 1;
constexpr int kExitNotKnown = 6;

// Returns the error for a node that has reported that there is no image. The outcome is then known.
Error known_failure(const Error& error) {
  return {ErrorCode::kAborted, error.to_string()};
}

}  // namespace

std::string Snapshots::why_none(const Job& job) const {
  if (deps_.running.contains(job.id)) return "a snapshot of the job is being taken";
  if (const Migration* open = deps_.migrations.open_of(job.id))
    return "migration " + migration_text(open->id) + " of the job is open";
  const std::string state = deps_.states.of(job);
  if (state == "running") return {};
  return "it is " + state + (state == "starting" && !job.reason.empty() ? ": " + job.reason : "");
}

std::string Snapshots::why_never(const Job& job) const {
  if (job.spec.mode == MigrationMode::kAdopted)
    return "it was adopted, and has no images: start it with `run` to protect it";
  return deps_.states.lacks_context(job) ? why_none(job) : std::string();
}

control::Task<Result<void>> Snapshots::wait_until_free(JobId id) {
  const auto deadline = steady_clock::now() + kLongestTurn;
  auto soon_until = steady_clock::now() + kLongestPause;
  while (true) {
    const Job* job = deps_.jobs.find(id);
    if (job == nullptr) co_return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
    const std::string state = deps_.states.of(*job);
    const bool held = deps_.running.contains(id) || deps_.migrations.open_of(id) != nullptr;
    const bool soon = state == "paused" || (state == "starting" && !deps_.states.lacks_context(*job));
    if (held || !soon) soon_until = steady_clock::now() + kLongestPause;
    const bool passes = held || (soon && steady_clock::now() < soon_until);
    const std::string obstacle = why_none(*job);
    if (obstacle.empty()) co_return ok();
    if (!passes || steady_clock::now() >= deadline)
      co_return Error(ErrorCode::kRefused,
                      "No image of job " + job->spec.name + " can be taken: " + obstacle);
    co_await wait_for_change(deps_.jobs);
  }
}

control::Task<Result<void>> Snapshots::capture(JobId id, Destination to, TaskId task) {
  Job* job = deps_.jobs.find(id);
  if (job == nullptr) co_return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
  if (const std::string obstacle = why_none(*job); !obstacle.empty())
    co_return Error(ErrorCode::kRefused, "No image of job " + job->spec.name + " can be taken: " + obstacle);
  CKPT_CO_TRY(order, deps_.orders.order_of(*job, to, false));
  const std::string node = job->node();
  const std::string owner = checkpoint_store_node(*job, to);
  const Incarnation incarnation = order.incarnation;
  const SnapshotOrders::Outcome outcome =
      co_await deps_.orders.give(std::move(order), RunningSnapshot(task, node, owner), kLongestSnapshot);
  const Result<void>& answer = outcome.captured;
  job = deps_.jobs.find(id);
  deps_.jobs.changed().notify();
  if (!answer && answer.error().code() == ErrorCode::kTimedOut)
    deps_.orders.give_up_soon(id, node, incarnation);
  if (!answer) co_return outcome.failed ? known_failure(answer.error()) : answer.error();
  if (job == nullptr) co_return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
  Job changed = *job;
  changed.snapshot = deps_.reports.facts_of(*job, owner, to.folder);
  if (changed.snapshot->image.version == 0)
    co_return Error(ErrorCode::kProtocol,
                    "Node " + node + " reports that the snapshot is complete, but names no image");
  if (ImageTask* shown = deps_.tasks.find(task)) shown->image = changed.snapshot->image;
  co_return deps_.jobs.replace(std::move(changed));
}

control::Task<Result<TaskId>> Snapshots::begin(JobId id, std::string to) {
  const Job* job = deps_.jobs.find(id);
  if (job == nullptr) co_return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
  // By default the snapshot is stored in the same place as the job's other images.
  CKPT_CO_TRY(destination, destination_of(to, deps_.nodes));
  if (to.empty() && job->protection) destination = kept_at(*job->protection);
  CKPT_CO_TRYV(co_await wait_until_free(id));
  job = deps_.jobs.find(id);
  const TaskId task = deps_.tasks.begin("snapshot", *job, "copying").id;
  control::spawn(deps_.executor, "a snapshot of " + job_text(id), run_task(id, std::move(destination), task));
  co_return task;
}

control::Task<> Snapshots::run_task(JobId id, Destination to, TaskId task) {
  const auto captured = co_await capture(id, std::move(to), task);
  const Job* job = deps_.jobs.find(id);
  const std::string name = job == nullptr ? job_text(id) : job->spec.name + " (" + job_text(id) + ")";
  if (captured) {
    const ImageTask* shown = deps_.tasks.find(task);
    const std::string image = shown != nullptr && shown->image ? image_text(*shown->image) : "";
    deps_.events.add("snapshot-taken", "image " + image + " of job " + name + " was taken",
                     job == nullptr ? "" : job->node(), id);
    deps_.tasks.finish(task);
    co_return;
  }
  const Error& error = captured.error();
  deps_.events.add("snapshot-failed", "no image was taken of job " + name + ": " + error.to_string(),
                   job == nullptr ? "" : job->node(), id);
  deps_.tasks.fail(task, error,
                   error.code() == ErrorCode::kTimedOut || error.code() == ErrorCode::kUnavailable
                       ? kExitNotKnown
                       : kExitNoImage);
}

}  // namespace ckpt::coordinator
