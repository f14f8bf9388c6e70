// SPDX-License-Identifier: Apache-2.0
#include "coordinator/operations/job_states.h"

#include <algorithm>

#include "libckpt/base/clock.h"

namespace ckpt::coordinator {
namespace {

// The time in which a program creates its CUDA context. It lets a script send an order directly after `run
// --detach`.
constexpr std::int64_t kMakesContextMs = 3000;

}  // namespace

std::string JobStates::of(const Job& job) const {
  if (job.operation && job.operation->stops) return "stopping";
  if (job.operation && job.operation->goal == OperationGoal::kParked) return "suspending";
  const bool no_instance = job.state == JobState::kParked || job.state == JobState::kRestoring;
  if (is_ended(job.state) || no_instance) return std::string(to_string(job.state));
  if (job.stop_requested) return "stopping";
  if (!nodes_.connected(job.node())) return "unreachable";
  const Node* node = nodes_.find(job.node());
  const wire::JobInstance* instance = node->find(job.id, job.segments.back().incarnation);
  if (instance != nullptr && instance->unknown) return "unknown";
  if (migrations_.open_of(job.id) != nullptr) return "migrating";
  if (job.phase == wire::JobPhase::kPaused) return "paused";
  if (job.state == JobState::kStarting || job.phase == wire::JobPhase::kStarting) return "starting";
  return "running";
}

std::string JobStates::trouble_of(const Job& job) const {
  if (!holds_gpu(job.state) || job.state == JobState::kRestoring) return {};
  for (const JobRank& rank : job.ranks) {
    const auto fault = faults_.find(rank.place);
    if (fault && fault->is_unhealthy()) return to_text(rank.place) + ": " + to_text(*fault);
  }
  return {};
}

std::string JobStates::warning_of(const Job& job) const {
  std::string text = trouble_of(job);
  if (text.empty()) return text;
  const bool forbidden = std::any_of(job.ranks.begin(), job.ranks.end(), [this](const JobRank& rank) {
    const auto fault = faults_.find(rank.place);
    return fault && fault->forbids_reading;
  });
  if (forbidden)
    text += "; its memory must no longer be read: `restore` continues the job from an image before the fault";
  return text;
}

std::string JobStates::silent_node(const Job& job) const {
  if (holds_gpu(job.state) && job.state != JobState::kRestoring && !nodes_.connected(job.node()))
    return job.node();
  for (const std::string& name : job.unfenced_nodes)
    if (!nodes_.connected(name)) return name;
  return {};
}

std::string JobStates::why_not_stopped(const Job& job) const {
  const std::string silent = job.stop_requested ? silent_node(job) : "";
  if (silent.empty()) return {};
  return "node " + silent +
         " is unreachable, and the job may still run there: the job is stopped when that node reconnects";
}

std::string JobStates::why_not_movable(const Job& job) const {
  if (const std::string silent = is_ended(job.state) ? "" : why_not_stopped(job); !silent.empty())
    return silent;
  const std::string state = of(job);
  if (const Migration* open = migrations_.open_of(job.id))
    return "migration " + migration_text(open->id) + " of the job is open";
  if (std::string others = job.why_not_alone(); !others.empty()) return others;
  if (state == "unknown") return job.reason;
  // A snapshot yields to a move: its node first lets the job continue.
  const bool passes = state == "paused" && snapshots_.contains(job.id);
  if (state == "starting" && !job.reason.empty()) return "it is starting: " + job.reason;
  if (state != "running" && !passes) return "it is " + state;
  if (!job.movable) return job.reason.empty() ? "it has not reported that it can be moved" : job.reason;
  return {};
}

bool JobStates::lacks_context(const Job& job) const {
  // A job without a report of its node is not counted, because it may begin to run at any moment.
  const bool is_reported = job.state != JobState::kStarting && !job.reason.empty();
  return is_reported && job.spec.mode == MigrationMode::kTransparent && of(job) == "starting" &&
         wall_clock_ms() - job.started_ms > kMakesContextMs;
}

bool JobStates::stays_put(const Job& job) const {
  return !job.why_not_alone().empty() || lacks_context(job) ||
         (of(job) == "running" && !job.movable && !job.reason.empty());
}

}  // namespace ckpt::coordinator
