// SPDX-License-Identifier: Apache-2.0
// Giving up operations on images: for a stop, for a move, and at their deadline.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "coordinator/images/image_table.h"
#include "libckpt/net/control/spawn.h"
#include "libckpt/protocol/wire/image_messages.h"

namespace ckpt::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::chrono::seconds kCancelAnswer{30};
constexpr std::chrono::seconds kLongestCancel{60};
constexpr int kExitUnknown = 6;

}  // namespace

steady_clock::time_point ImageTable::operation_deadline() const {
  return steady_clock::now() + milliseconds(parts_.config.image_timeout_ms);
}

bool ImageTable::is_expired(JobId id) const {
  const auto now = steady_clock::now();
  const auto deadline = deadlines_.find(id);
  if (deadline != deadlines_.end() && now >= deadline->second) return true;
  const auto away = vault_away_.find(id);
  return away != vault_away_.end() && now >= away->second + milliseconds(parts_.config.vault_timeout_ms);
}

Error ImageTable::why_given_up(const Job& job) const {
  const ImageOperation& operation = *job.operation;
  if (!operation.cancelled.empty()) return {ErrorCode::kAborted, operation.cancelled};
  if (vault_away_.contains(job.id))
    return {ErrorCode::kTimedOut,
            fmt::format("The vault of {} did not answer for {} ms; `suspend --to` names another one",
                        operation.image.node, parts_.config.vault_timeout_ms)};
  return {ErrorCode::kTimedOut,
          fmt::format("It was not done within {} ms (image_timeout_ms)", parts_.config.image_timeout_ms)};
}

bool ImageTable::give_up_parking(JobId id, const std::string& why) {
  const Job* job = parts_.jobs.find(id);
  const bool parks = job != nullptr && job->operation && job->operation->stage == OperationStage::kTaking;
  if (!parks || !parts_.nodes.connected(job->node())) return false;
  if (!job->operation->cancelled.empty()) return true;
  Job changed = *job;
  changed.operation->cancelled = why;
  if (auto stored = parts_.jobs.replace(std::move(changed)); !stored) {
    spdlog::error("that {} of {} is given up was not stored: {}", job->operation->verb, job_text(id),
                  stored.assume_error().to_string());
    return false;
  }
  tell_given_up(id);
  return true;
}

Result<bool> ImageTable::stop_operation(JobId id, std::int64_t grace_ms) {
  const Job* job = parts_.jobs.find(id);
  if (job == nullptr || !job->operation) return false;
  if (job->operation->stops) return true;
  Job changed = *job;
  ImageOperation& operation = *changed.operation;
  operation.stops = true;
  operation.stop_grace_ms = grace_ms;
  operation.cancelled = "The job was to be stopped";
  if (operation.stage == OperationStage::kEnding) operation.goal = OperationGoal::kParked;
  changed.stop_requested = true;
  const OperationStage stage = operation.stage;
  CKPT_TRYV(parts_.jobs.replace(std::move(changed)));
  if (stage == OperationStage::kTaking) tell_given_up(id);
  // Its node may be at it for long: what it has started then is ended by the fence.
  if (stage == OperationStage::kStarting) {
    CKPT_TRYV(not_started(id, why_given_up(*job)));
  }
  return true;
}

// The coroutine of the operation waits for the snapshot's answer, which this brings about.
void ImageTable::tell_given_up(JobId id) {
  const Job* job = parts_.jobs.find(id);
  control::spawn(parts_.executor, "giving up a snapshot of " + job_text(id),
                 give_up_snapshot(id, job->node(), job->incarnation));
}

control::Task<> ImageTable::give_up_snapshot(JobId id, std::string node, Incarnation incarnation) {
  wire::TakeSnapshot order;
  order.job = id;
  order.incarnation = incarnation;
  order.cancel = true;
  const auto told = co_await parts_.nodes.call(node, std::move(order), kCancelAnswer);
  if (!told)
    spdlog::info("giving up a snapshot of {} on {}: {}", job_text(id), node, told.assume_error().to_string());
}

// Once its node has said that no snapshot has the job, it runs on.
control::Task<> ImageTable::cancel_last_snapshot(JobId id) {
  const Job* job = parts_.jobs.find(id);
  const std::string node = job->node();
  wire::TakeSnapshot order;
  order.job = id;
  order.incarnation = job->incarnation;
  order.cancel = true;
  const auto told = co_await parts_.nodes.call(node, std::move(order), kCancelAnswer);
  job = parts_.jobs.find(id);
  if (job == nullptr || !job->operation || job->operation->stage != OperationStage::kTaking) co_return;
  const bool free = told || told.assume_error().code() == ErrorCode::kNotFound;
  if (!free || !view_of(*job).instance_alive) co_return co_await wait_for_news();
  if (auto recorded = abandon(id, why_given_up(*job)); !recorded) co_await wait_for_news();
}

control::Task<Result<void>> ImageTable::cancel_parking(JobId id, std::string why) {
  if (!give_up_parking(id, why))
    co_return Error(ErrorCode::kRefused, "What is under way with the images of " + job_text(id) +
                                             " cannot be given up now: try again when it is done");
  const auto deadline = steady_clock::now() + kLongestCancel;
  while (true) {
    const Job* job = parts_.jobs.find(id);
    if (job == nullptr || !job->operation) co_return ok();
    if (steady_clock::now() >= deadline)
      co_return Error(ErrorCode::kTimedOut,
                      "Node " + job->node() + " has not given up the snapshot of " + job->spec.name);
    co_await wait_for_news();
  }
}

void ImageTable::stop_after(JobId id, const ImageOperation& operation) {
  Job* job = parts_.jobs.find(id);
  if (!operation.stops || job == nullptr) return;
  if (auto stopped = parts_.service.stop(*job, operation.stop_grace_ms); !stopped)
    spdlog::warn("stopping {}: {}", job_text(id), stopped.assume_error().to_string());
}

// Who waits for it waits no longer, although it goes on as soon as what it waits for is back.
void ImageTable::close_expired_task(JobId id) {
  const Job* job = parts_.jobs.find(id);
  if (!operation_tasks_.contains(id) || !is_expired(id)) return;
  const bool away = !parts_.nodes.connected(job->node());
  close_task(id,
             Error(ErrorCode::kTimedOut,
                   fmt::format("It is not known yet how {} of {} ends: it waits for node {}; `describe` says "
                               "how it goes on",
                               job->operation->verb, job->spec.name,
                               away ? job->node() : job->operation->image.node)),
             kExitUnknown);
}

}  // namespace ckpt::coordinator
