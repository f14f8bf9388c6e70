// SPDX-License-Identifier: Apache-2.0
#include "coordinator/lifecycle/run_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "coordinator/lifecycle/job_machine.h"
#include "coordinator/lifecycle/order_rules.h"
#include "coordinator/lifecycle/rank_state.h"
#include "libckpt/base/private_text.h"
#include "libckpt/base/program_error.h"

namespace ckpt::coordinator::lifecycle {
namespace {

void start_running(JobDraft& draft, std::size_t at) {
  Job& rank = draft.change(at);
  rank.state = JobState::kRunning;
  draft.log(at, "job-started", "job " + label(rank) + " started on " + to_text(rank.place()), rank.node());
}

}  // namespace

Reported report_of(const wire::JobInstance& instance) {
  return {instance.phase, instance.exit_code, instance.ended_on_request, instance.reason};
}

bool take_report(Job& rank, const wire::JobInstance& instance, std::int64_t now_ms) {
  std::uint64_t bytes = 0;
  for (const wire::RankState& state : instance.ranks)
    bytes += std::max(state.state_bytes, state.device_bytes);
  rank.phase = instance.phase;
  // An instance without a description reports nothing about movability, so the known value stays valid.
  if (instance.movable || !instance.reason.empty()) rank.movable = instance.movable;
  if (!is_ended(rank.state)) rank.reason = instance.reason;
  rank.obstacles = instance.obstacles;
  for (const wire::RankState& state : instance.ranks) {
    const auto known = std::find_if(rank.ranks.begin(), rank.ranks.end(),
                                    [&](const JobRank& one) { return one.rank == state.rank; });
    if (known == rank.ranks.end()) continue;
    known->pid = state.pid;
    known->place.gpu = state.gpu_index;
    if (state.state_bytes != 0) known->state_bytes = state.state_bytes;
  }
  return bytes != 0 && !is_over(instance.phase) && rank.memory.add(now_ms, bytes);
}

void end(JobDraft& draft, std::size_t at, JobState state, int exit_code, std::string reason) {
  Job& rank = draft.change(at);
  rank.state = state;
  rank.exit_code = exit_code;
  rank.ended_on_request = false;
  rank.reason = std::move(reason);
  rank.ended_ms = draft.now_ms();
  if (state == JobState::kExited)
    draft.log(at, "job-ended",
              exit_code < 0 ? fmt::format("job {} ended: {}", label(rank), rank.reason)
                            : fmt::format("job {} ended with exit code {}", label(rank), exit_code),
              rank.node());
  else
    draft.log(at, state == JobState::kFailed ? "job-failed" : "job-lost",
              fmt::format("job {} {}: {}", label(rank), to_string(state), rank.reason), rank.node());
}

bool is_decided_elsewhere(const Job& rank, const JobView& view) {
  return rank.operation.has_value() || view.open_migration(rank.id) != nullptr;
}

Result<void> on(JobDraft& draft, std::size_t at, const StartAnswered& event) {
  if (state_of(draft.rank(at)) != RankState::kStarting) return ok();
  if (!event.error) {
    start_running(draft, at);
    return ok();
  }
  const int program_status = program_status_of(*event.error);
  const std::string reason = event.error->to_string();
  end(draft, at, JobState::kFailed, program_status != 0 ? program_status : kExitOfFailed,
      program_status != 0 ? mark_private(PrivatePart::kCommand, reason) : reason);
  return ok();
}

Result<void> on(JobDraft& draft, std::size_t at, const Reported& event) {
  const Job& rank = draft.rank(at);
  if (!holds_gpu(rank.state)) return ok();
  const bool is_open = is_decided_elsewhere(rank, draft.view());
  const bool has_exited = event.phase == wire::JobPhase::kExited;
  if (rank.state == JobState::kStarting && !rank.operation && !has_exited) start_running(draft, at);
  if (!has_exited || is_open) return ok();
  end(draft, at, JobState::kExited, event.exit_code, event.exit_code < 0 ? event.reason : "");
  draft.change(at).ended_on_request = event.ended_on_request;
  return ok();
}

Result<void> on(JobDraft& draft, std::size_t at, const Missing&) {
  const Job& rank = draft.rank(at);
  if (!holds_gpu(rank.state)) return ok();
  if (state_of(rank) == RankState::kStarting) {
    if (!rank.stop_requested) return ok();
    draft.change(at).unfenced_nodes.insert(rank.node());  // the instance counts as unfenced, because the node
                                                          // may be executing an order to start the rank
    end(draft, at, JobState::kExited, kExitOfStopped, "stopped before it had started");
    return ok();
  }
  if (is_decided_elsewhere(rank, draft.view()) || draft.view().is_closing(rank.id)) return ok();
  end(draft, at, JobState::kLost, kExitOfFailed, "node " + rank.node() + " no longer has the job");
  return ok();
}

Result<void> on(JobDraft& draft, std::size_t at, const LeftBehind&) {
  const Job& rank = draft.rank(at);
  if (!holds_gpu(rank.state) || is_decided_elsewhere(rank, draft.view())) return ok();
  if (rank.stop_requested)
    end(draft, at, JobState::kExited, kExitOfStopped, "stopped while it was being suspended");
  else
    end(draft, at, JobState::kLost, kExitOfFailed,
        "node " + rank.node() +
            " reports that the job continued elsewhere, but no node has the job: `gpumigrate images` shows "
            "its images");
  return ok();
}

Result<void> on(JobDraft& draft, std::size_t at, const MoveRunsAt& event) {
  if (const Job& known = draft.rank(at);
      known.incarnation == event.k && known.segments.back() == event.segment) {
    if (!event.argv.empty() && known.spec.argv != event.argv) draft.change(at).spec.argv = event.argv;
    return ok();
  }
  Job& rank = draft.change(at);
  if (!event.argv.empty()) rank.spec.argv = event.argv;
  rank.incarnation = event.k;
  const auto known = std::find(rank.segments.begin(), rank.segments.end(), event.segment);
  if (known != rank.segments.end())
    rank.segments.erase(known + 1, rank.segments.end());  // the rank continues in that segment, and so does
                                                          // its log
  else
    rank.segments.push_back(event.segment);
  const std::vector<JobRank> before = std::exchange(rank.ranks, event.ranks);
  for (std::size_t i = 0; i < std::min(before.size(), rank.ranks.size()); ++i)
    rank.ranks[i].state_bytes = before[i].state_bytes;
  rank.phase = wire::JobPhase::kRunning;
  return ok();
}

Result<void> on(JobDraft& draft, std::size_t at, const FoundRunning& event) {
  const Job& known = draft.rank(at);
  const std::string node = event.at.segment.node;
  draft.log(
      at, "job-taken-in",
      fmt::format("job {} was found on {} as incarnation {}: this coordinator's store had recorded it as {} "
                  "on {} with incarnation {}",
                  label(known), node, event.at.k, to_string(known.state), known.node(), known.incarnation),
      node);
  Job& rank = draft.change(at);
  rank.spec.name = event.name;
  rank.state = JobState::kRunning;
  rank.exit_code = -1;
  rank.ended_ms = rank.parked_ms = rank.last_active_ms = 0;
  rank.resumes_itself = rank.unfenced = false;
  rank.unconfirmed = rank.unconfirmed || event.known_elsewhere;
  rank.reason.clear();
  return apply(draft, at, event.at);
}

Result<void> on(JobDraft& draft, std::size_t at, const NodeRemoved& event) {
  const RankState state = state_of(draft.rank(at));
  if (state != RankState::kStarting && state != RankState::kRunning) return ok();
  draft.change(at).unfenced = event.unfenced;
  end(draft, at, JobState::kLost, kExitOfFailed, "node " + draft.rank(at).node() + " was removed");
  return ok();
}

Result<void> on(JobDraft& draft, std::size_t at, const RunsUnmanaged& event) {
  const Job& rank = draft.rank(at);
  if (rank.state != JobState::kLost || rank.segments.back() != Segment(event.node, event.incarnation))
    return ok();
  const std::string reason = fmt::format(
      "runs unmanaged on {}, since that node was removed; `gpumigrate node add {}` adds the node again",
      event.node, event.node);
  if (rank.reason != reason) draft.change(at).reason = reason;
  return ok();
}

Result<void> on(JobDraft& draft, std::size_t at, const Proven& event) {
  const Job& rank = draft.rank(at);
  const bool is_in_doubt =
      rank.unfenced_nodes.contains(event.node) || (rank.unfenced && rank.node() == event.node);
  const bool is_proof = is_in_doubt && draft.view().connected(event.node) &&
                        given_up_to(rank, draft.view()) <= event.up_to &&
                        !has_instance(draft.view(), event.node, rank.id, event.up_to);
  return is_proof ? on(draft, at, NodeFenced{event.node}) : ok();
}

Result<void> on(JobDraft& draft, std::size_t at, const NodeFenced& event) {
  const Job& rank = draft.rank(at);
  if (rank.unfenced && rank.node() == event.node) draft.change(at).unfenced = false;
  if (rank.unfenced_nodes.contains(event.node)) draft.change(at).unfenced_nodes.erase(event.node);
  return ok();
}

Result<void> on(JobDraft& draft, std::size_t at, const Confirmed& event) {
  const Job& rank = draft.rank(at);
  if (!rank.unconfirmed) return ok();
  draft.log(
      at, "job-confirmed",
      fmt::format("job {} was confirmed by {}: it may be moved automatically again", label(rank), event.by),
      rank.node());
  draft.change(at).unconfirmed = false;
  return ok();
}

}  // namespace ckpt::coordinator::lifecycle
