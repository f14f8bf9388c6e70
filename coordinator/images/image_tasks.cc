// SPDX-License-Identifier: Apache-2.0
#include "coordinator/images/image_tasks.h"

#include <algorithm>

namespace ckpt::coordinator {
namespace {

constexpr std::size_t kKept = 500;

}  // namespace

std::string task_text(TaskId id) {
  return wire::id_text('t', id);
}

std::optional<TaskId> parse_task_id(std::string_view text) {
  return wire::parse_id('t', text);
}

ImageTask& ImageTasks::begin(std::string verb, const Job& job, std::string state) {
  return begin(std::move(verb), job.id, job.spec.name, std::move(state));
}

ImageTask& ImageTasks::begin(std::string verb, JobId job, std::string job_name, std::string state) {
  for (auto at = tasks_.begin(); tasks_.size() >= kKept && at != tasks_.end();)
    at = at->second.open ? std::next(at) : tasks_.erase(at);
  const TaskId id = wire::make_id(next_++, tag_);
  ImageTask& task = tasks_[id];
  task.id = id;
  task.verb = std::move(verb);
  task.job = job;
  task.job_name = std::move(job_name);
  task.state = std::move(state);
  return task;
}

ImageTask* ImageTasks::find(TaskId id) {
  const auto at = wire::find_meant(tasks_, id);
  return at == tasks_.end() ? nullptr : &at->second;
}

void ImageTasks::enter(TaskId id, std::string state) {
  ImageTask* task = find(id);
  if (task == nullptr || !task->open) return;
  task->state = std::move(state);
  changed_.notify();
}

void ImageTasks::fail(TaskId id, const Error& error, int exit_code) {
  ImageTask* task = find(id);
  if (task == nullptr || !task->open) return;
  task->open = false;
  task->state = "failed";
  task->error = error;
  task->exit_code = exit_code;
  changed_.notify();
}

void ImageTasks::finish(TaskId id) {
  ImageTask* task = find(id);
  if (task == nullptr || !task->open) return;
  task->open = false;
  task->state = "done";
  changed_.notify();
}

control::Task<> ImageTasks::wait(TaskId id, std::chrono::steady_clock::time_point deadline) {
  while (true) {
    const ImageTask* task = find(id);
    if (task == nullptr || !task->open || std::chrono::steady_clock::now() >= deadline) co_return;
    co_await changed_.wait_until(deadline);
  }
}

}  // namespace ckpt::coordinator
