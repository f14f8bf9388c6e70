// SPDX-License-Identifier: Apache-2.0
#include "coordinator/images/operations/open_operations.h"

#include <fmt/format.h>

#include <algorithm>

namespace ckpt::coordinator {

using std::chrono::milliseconds;

OpenOperations::OpenOperations(const Config& config, ImageTasks& tasks, JobActions& actions)
    : config_(config), tasks_(tasks) {
  actions.subscribe([this](JobId id, const lifecycle::JobAction& action) {
    if (const auto* entered = std::get_if<lifecycle::TaskEntered>(&action))
      tasks_.enter(task_id(id), entered->state);
    else if (const auto* ended = std::get_if<lifecycle::TaskEnded>(&action))
      end(id, *ended);
  });
}

void OpenOperations::end(JobId id, const lifecycle::TaskEnded& ended) {
  if (ImageTask* task = tasks_.find(task_id(id)); task != nullptr && !ended.error) {
    task->exit_code = ended.exit_code;
    task->image = ended.image;
    task->restored = ended.restored;
    task->fill_ns = ended.fill_ns;
  }
  close(id, ended.error, ended.exit_code);
}

bool OpenOperations::is_driven(JobId id) const {
  const Open* open = find(id);
  return open != nullptr && open->driven;
}

const OpenOperations::Open* OpenOperations::find(JobId id) const {
  const auto at = open_.find(id);
  return at == open_.end() ? nullptr : &at->second;
}

bool OpenOperations::begin_to_drive(JobId id) {
  Open& open = open_[id];
  open.deadline = deadline();
  open.away_since.reset();
  return !std::exchange(open.driven, true);
}

void OpenOperations::end_to_drive(JobId id) {
  const TaskId task = task_id(id);
  open_.erase(id);
  if (task != 0) show(id, task);
}

TaskId OpenOperations::task_id(JobId id) const {
  const Open* open = find(id);
  return open == nullptr ? 0 : open->task;
}

void OpenOperations::close(JobId id, const std::optional<Error>& error, int exit_code) {
  const TaskId task = task_id(id);
  if (task == 0) return;
  show(id, 0);
  if (error)
    tasks_.fail(task, *error, exit_code);
  else
    tasks_.finish(task);
}

bool OpenOperations::is_listed(JobId id) const {
  const Open* open = find(id);
  return open != nullptr && open->listed;
}

void OpenOperations::checkpoint_store_is_away(JobId id) {
  Open& open = open_[id];
  if (!open.away_since) open.away_since = Clock::now();
}

OpenOperations::Clock::time_point OpenOperations::deadline() const {
  return Clock::now() + milliseconds(config_.image_timeout_ms);
}

bool OpenOperations::is_expired(JobId id) const {
  const Open* open = find(id);
  if (open == nullptr) return false;
  const auto now = Clock::now();
  if (open->deadline && now >= *open->deadline) return true;
  return open->away_since && now >= *open->away_since + milliseconds(config_.checkpoint_store_timeout_ms);
}

milliseconds OpenOperations::time_left(JobId id) const {
  const Open* open = find(id);
  if (open == nullptr || !open->deadline) return kLongest;
  const auto left = std::chrono::ceil<milliseconds>(*open->deadline - Clock::now());
  return std::clamp<milliseconds>(left, milliseconds(1), kLongest);
}

Error OpenOperations::why_given_up(const Job& job) const {
  const ImageOperation& operation = *job.operation;
  if (!operation.cancelled.empty()) return {ErrorCode::kAborted, operation.cancelled};
  const Open* open = find(job.id);
  if (open != nullptr && open->away_since)
    return {ErrorCode::kTimedOut,
            fmt::format(
                "The checkpoint store of {} did not answer for {} ms; choose another one with `suspend --to`",
                operation.image.node, config_.checkpoint_store_timeout_ms)};
  return {ErrorCode::kTimedOut, fmt::format("The operation did not finish within {} ms (image_timeout_ms)",
                                            config_.image_timeout_ms)};
}

}  // namespace ckpt::coordinator
