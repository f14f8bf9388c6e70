// SPDX-License-Identifier: Apache-2.0
#include "coordinator/fleet/job_lifecycle.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "coordinator/state/usual_pause.h"
#include "libckpt/base/clock.h"
#include "libckpt/base/private_text.h"
#include "libckpt/base/program_error.h"

namespace ckpt::coordinator {
namespace {

constexpr int kExitOfFailed = 125;
constexpr int kExitOfStopped = 143;

// The memory that the instance holds goes into the job's history; true if that is worth storing.
bool take_memory(Job& job, const wire::JobInstance& instance) {
  std::uint64_t bytes = 0;
  for (const wire::RankState& rank : instance.ranks) bytes += std::max(rank.state_bytes, rank.device_bytes);
  const bool gone = is_over(instance.phase);
  return bytes != 0 && !gone && job.memory.add(wall_clock_ms(), bytes);
}

}  // namespace

void JobLifecycle::on_started(Job& job) {
  if (job.state != JobState::kStarting) return;
  job.state = JobState::kRunning;
  table_.save(job);
  events_.add("job-started", "job " + label(job) + " started on " + to_text(job.ranks.front().place),
              job.node(), job.id);
}

void JobLifecycle::on_start_failed(Job& job, const Error& reason) {
  if (job.state != JobState::kStarting) return;
  const int program_status = program_status_of(reason);
  end(job, JobState::kFailed, program_status != 0 ? program_status : kExitOfFailed,
      program_status != 0 ? mark_private(PrivatePart::kCommand, reason.to_string()) : reason.to_string());
}

std::vector<JobId> JobLifecycle::on_inventory(const Node& node) {
  std::vector<JobId> missing_starts;
  for (const wire::JobInstance& instance : node.instances) on_instance(node, instance);
  for (Job& job : table_.live()) {
    const Segment& current = job.segments.back();
    if (!holds_gpu(job.state) || current.node != node.row.name ||
        node.find(job.id, current.incarnation) != nullptr)
      continue;
    if (job.state == JobState::kStarting && job.stop_requested)
      end(job, JobState::kExited, kExitOfStopped, "stopped before it had started");
    else if (job.state == JobState::kStarting)
      missing_starts.push_back(job.id);
    else if (!judged_elsewhere(job) && !migrations_.is_closing(job.id))
      end(job, JobState::kLost, kExitOfFailed, "node " + node.row.name + " does not have it any more");
  }
  table_.changed().notify();  // also the free memory has changed
  return missing_starts;
}

void JobLifecycle::on_instance(const Node& node, const wire::JobInstance& instance) {
  Job* job = table_.find(instance.job);
  if (job == nullptr) {
    return;  // forgotten, or recovery.h takes it in
  }
  const Segment& current = job->segments.back();
  if (!holds_gpu(job->state) || current.node != node.row.name || current.incarnation != instance.incarnation)
    return;
  judge(*job, instance);
}

void JobLifecycle::judge_again(JobId id, const Node* node) {
  Job* job = table_.find(id);
  if (job == nullptr || node == nullptr || !holds_gpu(job->state)) return;
  const Segment& current = job->segments.back();
  if (current.node != node->row.name) return;
  if (const wire::JobInstance* instance = node->find(id, current.incarnation)) judge(*job, *instance);
}

void JobLifecycle::judge(Job& job, const wire::JobInstance& instance) {
  const bool open = judged_elsewhere(job);
  const auto phase_before = job.phase;
  if (take_memory(job, instance)) table_.memory_changed(job.id);
  job.phase = instance.phase;
  // An instance that has not been described yet reports nothing: the known state of the job holds.
  if (instance.movable || !instance.reason.empty()) job.movable = instance.movable;
  if (!is_ended(job.state)) job.reason = instance.reason;
  job.obstacles = instance.obstacles;
  for (const wire::RankState& state : instance.ranks) {
    const auto rank = std::find_if(job.ranks.begin(), job.ranks.end(),
                                   [&](const JobRank& known) { return known.rank == state.rank; });
    if (rank == job.ranks.end()) continue;
    rank->pid = state.pid;
    rank->place.gpu = state.gpu_index;
    if (state.state_bytes != 0) rank->state_bytes = state.state_bytes;
  }
  if (job.state == JobState::kStarting && instance.phase != wire::JobPhase::kExited) on_started(job);
  if (instance.phase == wire::JobPhase::kExited && !open) {
    job.ended_as_told = instance.ended_as_told;
    end(job, JobState::kExited, instance.exit_code, instance.exit_code < 0 ? instance.reason : "");
  } else if (phase_before != job.phase) {
    table_.save(job);
  } else {
    table_.changed().notify();
  }
}

void JobLifecycle::program_is(JobId id, const std::vector<std::string>& argv) {
  Job* job = table_.find(id);
  if (job == nullptr || job->spec.argv == argv) return;
  job->spec.argv = argv;
  table_.save(*job);
}

void JobLifecycle::runs_at(JobId id, Incarnation k, const Segment& segment, const std::vector<JobRank>& ranks,
                           const Node* node) {
  Job* job = table_.find(id);
  if (job == nullptr || (job->incarnation == k && job->segments.back() == segment)) return;
  job->incarnation = k;
  const auto known = std::find(job->segments.begin(), job->segments.end(), segment);
  if (known != job->segments.end())
    job->segments.erase(known + 1, job->segments.end());  // it continues where it was, and so does its log
  else
    job->segments.push_back(segment);
  const std::vector<JobRank> before = std::exchange(job->ranks, ranks);
  for (std::size_t i = 0; i < std::min(before.size(), ranks.size()); ++i)
    job->ranks[i].state_bytes = before[i].state_bytes;
  job->phase = wire::JobPhase::kRunning;
  table_.save(*job);
  judge_again(id, node);
}

void JobLifecycle::set_downtime(JobId id, double downtime_ms, std::optional<wire::PauseFacts> pause) {
  Job* job = table_.find(id);
  if (job == nullptr) return;
  job->last_downtime_ms = downtime_ms;
  if (pause) add_pause(job->pauses, *pause);
  table_.save(*job);
}

Result<void> JobLifecycle::request_stop(Job& job, std::int64_t grace_ms) {
  Job changed = job;
  changed.stop_requested = true;
  changed.stop_grace_ms = grace_ms;
  return table_.replace(std::move(changed));
}

void JobLifecycle::stop_parked(Job& job, const std::string& silent_node) {
  if (job.state != JobState::kParked || job.operation) return;
  job.rested_ms = job.ended_ms;
  if (silent_node.empty()) return end(job, JobState::kExited, kExitOfStopped, "stopped while it was parked");
  end(job, JobState::kExited, -1,
      "stopped while it was parked; an instance of it may run on node " + silent_node +
          ", which is silent: it is ended there when the node is back");
}

void JobLifecycle::lose(JobId id, bool unfenced) {
  Job* job = table_.find(id);
  if (job == nullptr || is_ended(job->state)) return;
  job->unfenced = unfenced;
  end(*job, JobState::kLost, kExitOfFailed, "node " + job->node() + " was removed");
}

void JobLifecycle::lose_left(JobId id) {
  Job* job = table_.find(id);
  if (job == nullptr || !holds_gpu(job->state) || judged_elsewhere(*job)) return;
  end(*job, JobState::kLost, kExitOfFailed,
      "node " + job->node() + " says that it went on elsewhere, and no node has it: look at its images");
}

void JobLifecycle::runs_unmanaged(JobId id, const std::string& node, Incarnation incarnation) {
  Job* job = table_.find(id);
  if (job == nullptr || job->state != JobState::kLost || job->segments.back() != Segment(node, incarnation))
    return;
  const std::string reason = fmt::format(
      "runs on {} unmanaged: that node was removed; `gpumigrate node add {}` takes it back", node, node);
  if (job->reason == reason) return;
  job->reason = reason;
  table_.save(*job);
}

void JobLifecycle::not_parked(JobId id, const Node* node, bool stopped) {
  Job* job = table_.find(id);
  if (job == nullptr || node == nullptr || !holds_gpu(job->state)) return;
  const Segment& current = job->segments.back();
  const wire::JobInstance* instance = node->find(id, current.incarnation);
  if (current.node != node->row.name || instance == nullptr || instance->phase != wire::JobPhase::kMoved)
    return;
  if (stopped) return end(*job, JobState::kExited, kExitOfStopped, "stopped while it was being suspended");
  end(*job, JobState::kLost, kExitOfFailed, "it left for an image that is not there");
}

void JobLifecycle::end(Job& job, JobState state, int exit_code, std::string reason) {
  job.state = state;
  job.exit_code = exit_code;
  job.reason = std::move(reason);
  job.ended_ms = wall_clock_ms();
  table_.save(job);
  if (state == JobState::kExited)
    events_.add("job-ended",
                exit_code < 0 ? fmt::format("job {} ended: {}", label(job), job.reason)
                              : fmt::format("job {} ended with exit code {}", label(job), exit_code),
                job.node(), job.id);
  else
    events_.add(state == JobState::kFailed ? "job-failed" : "job-lost",
                fmt::format("job {} {}: {}", label(job), to_string(state), job.reason), job.node(), job.id);
}

Result<void> JobLifecycle::forget(const Job& job) {
  const JobId id = job.id;
  const std::string text = "job " + label(job);
  if (!is_ended(job.state) && job.stop_requested)
    return Error(
        ErrorCode::kRefused,
        fmt::format("{} is to be stopped, and node {} has not said that it has ended. It ends when that node "
                    "is back; `gpumigrate node rm {} --force --fenced` is your word that it is dead",
                    text, job.node(), job.node()));
  if (!is_ended(job.state))
    return Error(ErrorCode::kRefused,
                 fmt::format("{} is {}: only ended jobs are removed; `gpumigrate stop {}` ends it", text,
                             to_string(job.state), job.spec.name));
  if (judged_elsewhere(job))
    return Error(ErrorCode::kRefused,
                 text + " has ended, and a migration or an image operation of it has not");
  if (!job.may_live_on.empty())
    return Error(
        ErrorCode::kRefused,
        fmt::format("{} was stopped, and may still live on {}: it is ended there, or `gpumigrate node rm "
                    "NODE --force --fenced` is your word that it is dead",
                    text, fmt::join(job.may_live_on, ", ")));
  const std::string node = job.node();
  CKPT_TRYV(table_.remove(id));
  events_.add("job-removed", text + " was removed; its images stay", node, id);
  return ok();
}

std::vector<JobId> JobLifecycle::forget_old(const Retention& keep) {
  return table_.remove_old(
      keep, [this](const Job& job) { return !judged_elsewhere(job) && job.may_live_on.empty(); });
}

}  // namespace ckpt::coordinator
