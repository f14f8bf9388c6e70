// SPDX-License-Identifier: Apache-2.0
#include "coordinator/images/operations/operation_cancels.h"

#include <spdlog/spdlog.h>

#include "coordinator/images/wait_for_change.h"

namespace ckpt::coordinator {
namespace {

constexpr std::chrono::seconds kLongestCancel{60};

}  // namespace

bool OperationCancels::give_up_parking(JobId id, const std::string& why) {
  const Job* job = parts_.jobs.find(id);
  const bool parks = job != nullptr && job->operation && job->operation->stage == OperationStage::kTaking;
  if (!parks || !parts_.nodes.connected(job->node())) return false;
  if (!job->operation->cancelled.empty()) return true;
  Job changed = *job;
  changed.operation->cancelled = why;
  if (auto stored = parts_.jobs.replace(std::move(changed)); !stored) {
    spdlog::error("that {} of {} is given up was not stored: {}", job->operation->verb, job_text(id),
                  stored.error().to_string());
    return false;
  }
  tell_given_up(id);
  return true;
}

Result<bool> OperationCancels::stop_operation(JobId id, std::int64_t grace_ms) {
  const Job* job = parts_.jobs.find(id);
  if (job == nullptr || !job->operation) return false;
  if (job->operation->stops) return true;
  Job changed = *job;
  ImageOperation& operation = *changed.operation;
  operation.stops = true;
  operation.stop_grace_ms = grace_ms;
  operation.cancelled = "The job was to be stopped";
  // It ends now, whether or not these nodes have answered.
  if (operation.stage == OperationStage::kEnding) {
    operation.goal = OperationGoal::kParked;
    if (!operation.gone) changed.may_live_on.insert(job->node());
  }
  if (operation.stage == OperationStage::kStarting) changed.may_live_on.insert(operation.to_node);
  changed.stop_requested = true;
  const OperationStage stage = operation.stage;
  CKPT_TRYV(parts_.jobs.replace(std::move(changed)));
  if (stage == OperationStage::kTaking) tell_given_up(id);
  // Its node may be at it for long: what it has started then is ended by the fence.
  if (stage == OperationStage::kStarting) {
    CKPT_TRYV(parts_.records.not_started(id, parts_.open.why_given_up(*job)));
  }
  return true;
}

Result<void> OperationCancels::give_up_start(JobId id, const std::string& why) {
  const Job* job = parts_.jobs.find(id);
  if (job == nullptr || !job->operation || job->operation->goal != OperationGoal::kRunning) return ok();
  Job changed = *job;
  const OperationStage stage = changed.operation->stage;
  if (stage == OperationStage::kEnding) {
    changed.operation->goal = OperationGoal::kParked;
    changed.operation->why = why;
  }
  // Its node may be at it for long: what it has started then is ended by the fence.
  if (stage == OperationStage::kStarting) changed.may_live_on.insert(changed.operation->to_node);
  CKPT_TRYV(parts_.jobs.replace(std::move(changed)));
  if (stage != OperationStage::kStarting) return ok();
  return parts_.records.not_started(id, Error(ErrorCode::kAborted, why));
}

// The coroutine of the operation waits for the snapshot's answer, which this brings about.
void OperationCancels::tell_given_up(JobId id) {
  const Job* job = parts_.jobs.find(id);
  parts_.snapshots.give_up_soon(id, job->node(), job->incarnation);
}

control::Task<Result<void>> OperationCancels::cancel_parking(JobId id, std::string why) {
  if (!give_up_parking(id, why))
    co_return Error(ErrorCode::kRefused, "The operation on images of " + job_text(id) +
                                             " cannot be given up now: try again when it is done");
  const auto deadline = std::chrono::steady_clock::now() + kLongestCancel;
  while (true) {
    const Job* job = parts_.jobs.find(id);
    if (job == nullptr || !job->operation) co_return ok();
    if (std::chrono::steady_clock::now() >= deadline)
      co_return Error(ErrorCode::kTimedOut,
                      "Node " + job->node() + " has not given up the snapshot of " + job->spec.name);
    co_await wait_for_change(parts_.jobs);
  }
}

}  // namespace ckpt::coordinator
