// SPDX-License-Identifier: Apache-2.0
#include "coordinator/lifecycle/image_steps.h"

#include <fmt/format.h>

#include <algorithm>

#include "coordinator/lifecycle/job_machine.h"
#include "coordinator/lifecycle/rank_state.h"
#include "coordinator/lifecycle/run_steps.h"

namespace ckpt::coordinator::lifecycle {
namespace {

std::string name_and_id(const Job& rank) {
  return rank.spec.name + " (" + job_text(rank.id) + ")";
}

Error not_possible(const Job& rank, std::string_view event) {
  return Error(ErrorCode::kRefused,
               fmt::format("job {} is {}: {}", label(rank), to_string(state_of(rank)), event));
}

// Parks the rank in its image. Then applies a stop that waited for the parking.
Result<void> park(JobDraft& draft, std::size_t at) {
  Job& rank = draft.change(at);
  const ImageOperation operation = *rank.operation;
  rank.operation.reset();
  rank.state = JobState::kParked;
  rank.phase = wire::JobPhase::kExited;
  rank.reason = operation.reason;
  rank.resumes_itself = !operation.by_user;
  rank.ended_ms = operation.image.barrier_ms;  // work lost since the barrier, if any, is reported below
  rank.last_active_ms = 0;
  rank.parked_ms = draft.now_ms();
  draft.log(
      at, "job-parked",
      fmt::format("job {} is parked in {}{}: {}", name_and_id(rank), image_text(operation.image),
                  operation.lost_ms > 0 ? fmt::format(", {} ms of work are lost", operation.lost_ms) : "",
                  operation.reason),
      rank.node());
  draft.act(at, TaskEnded{.image = operation.image});
  return ok();
}

// Prepares the start of the next instance from the image. All earlier instances have ended.
void come(JobDraft& draft, std::size_t at) {
  Job& rank = draft.change(at);
  ImageOperation& operation = *rank.operation;
  operation.stage = OperationStage::kStarting;
  rank.incarnation = operation.fenced + 1;
  if (operation.image.suspect.empty()) end_doubts(rank.doubts, operation.fenced);
  // The placeholder segment of a removed job, with incarnation 0, is erased. Such a job has no earlier
  // segments.
  std::erase_if(rank.segments, [](const Segment& s) { return s.incarnation == 0; });
  Segment& segment = rank.segments.emplace_back(operation.to_node, rank.incarnation);
  segment.image = image_text(operation.image);
  segment.lost_ms = operation.lost_ms;
  for (JobRank& one : rank.ranks) {
    one.place = Place(operation.to_node, operation.to_gpu);
    one.pid = 0;
  }
  rank.state = JobState::kRestoring;
  rank.phase = wire::JobPhase::kStarting;
  rank.reason.clear();
  rank.movable = false;
  draft.act(at, TaskEntered{"starting"});
}

void set_losses(ImageOperation& operation, std::int64_t now_ms) {
  if (operation.ended_ms == 0) operation.ended_ms = now_ms;
  operation.lost_ms = std::max<std::int64_t>(0, operation.ended_ms - operation.image.barrier_ms);
}

// Stops a parked rank. Nothing of the rank runs, except possibly a canceled start on a disconnected node.
void stop_parked(JobDraft& draft, std::size_t at) {
  const std::string silent = silent_node(draft.rank(at), draft.view());
  Job& rank = draft.change(at);
  rank.stop_requested = true;
  rank.last_active_ms = rank.ended_ms;
  if (silent.empty()) return end(draft, at, JobState::kExited, kExitOfStopped, "stopped while it was parked");
  end(draft, at, JobState::kExited, -1,
      "stopped while it was parked; an instance of the job may run on node " + silent +
          ", which is unreachable: the instance is ended when the node reconnects");
}

// Cancels the operation as early as its stage permits. The rank is then stopped.
Result<void> stop_operation(JobDraft& draft, std::size_t at, std::int64_t grace_ms) {
  Job& rank = draft.change(at);
  ImageOperation& operation = *rank.operation;
  operation.stops = true;
  operation.stop_grace_ms = grace_ms;
  operation.cancelled = "The job is being stopped";
  switch (operation.stage) {
    case OperationStage::kTaking:
      draft.act(at, SnapshotCancelled{rank.node(), rank.incarnation});
      return ok();
    case OperationStage::kEnding:
      // The operation now parks the rank, whether or not its node has answered.
      operation.goal = OperationGoal::kParked;
      if (!operation.instance_ended) rank.unfenced_nodes.insert(rank.node());
      return ok();
    case OperationStage::kStarting:
      // The node's answer may take long, so the start fails at once. The fence ends an instance that the node
      // still starts.
      rank.unfenced_nodes.insert(operation.to_node);
      return apply(draft, at, NotStarted{Error(ErrorCode::kAborted, operation.cancelled)});
  }
  return ok();
}

// Applies a stop that waited for the end of an operation.
Result<void> stop_after(JobDraft& draft, std::size_t at, const ImageOperation& operation) {
  if (!operation.stops) return ok();
  return apply(draft, at, Stop{operation.stop_grace_ms});
}

}  // namespace

// Begins an operation. A user's restore cancels a pending stop. Every other operation leaves the stop in
// force, so that a rank that is being parked in its image ends there.
Result<void> on(JobDraft& draft, std::size_t at, const OperationBegun& event) {
  const Job& before = draft.rank(at);
  const bool comes_back = event.operation.goal == OperationGoal::kRunning;
  const bool takes = event.operation.stage == OperationStage::kTaking;
  if (before.stop_requested && (takes || (comes_back && !event.operation.by_user)))
    return Error(ErrorCode::kRefused, fmt::format("job {} is being stopped", label(before)));
  if (before.operation)
    draft.act(at, TaskEnded{Error(ErrorCode::kAborted, "Another order replaced this one"), kImageExitFailed});
  ImageOperation operation = event.operation;
  operation.fenced = highest_known(before, draft.view());
  operation.deadline_ms = draft.now_ms() + draft.view().image_timeout_ms();
  // The node may be executing the start that is canceled here, and report no instance yet.
  const bool was_coming = state_of(before) == RankState::kComing;
  const std::string comes_to = was_coming ? before.operation->to_node : "";
  Job& rank = draft.change(at);
  if (was_coming) rank.unfenced_nodes.insert(comes_to);
  if (operation.stage == OperationStage::kEnding) {
    rank.fenced = operation.fenced;
    if (comes_back) rank.state = JobState::kRestoring;
    if (comes_back) rank.stop_requested = rank.ended_on_request = false;
    rank.exit_code = -1;
    operation.stops = rank.stop_requested;
    operation.stop_grace_ms = rank.stop_grace_ms;
    if (operation.stops && !operation.instance_ended) rank.unfenced_nodes.insert(rank.node());
  }
  const auto is_away = [&draft](const std::string& node) { return !draft.view().connected(node); };
  if (operation.operator_confirmed) std::erase_if(rank.unfenced_nodes, is_away);
  rank.operation = std::move(operation);
  return ok();
}

Result<void> on(JobDraft& draft, std::size_t at, const StaysParked&) {
  if (state_of(draft.rank(at)) != RankState::kParked)
    return not_possible(draft.rank(at), "only a parked job can stay parked");
  if (draft.rank(at).resumes_itself) draft.change(at).resumes_itself = false;
  return ok();
}

Result<void> on(JobDraft& draft, std::size_t at, const SnapshotGivenUp& event) {
  if (state_of(draft.rank(at)) != RankState::kParking || !draft.view().connected(draft.rank(at).node()))
    return not_possible(draft.rank(at), "no snapshot of the job can be cancelled");
  if (!draft.rank(at).operation->cancelled.empty()) return ok();
  Job& rank = draft.change(at);
  rank.operation->cancelled = event.reason;
  draft.act(at, SnapshotCancelled{rank.node(), rank.incarnation});
  return ok();
}

Result<void> on(JobDraft& draft, std::size_t at, const RankParkedAgain& event) {
  switch (state_of(draft.rank(at))) {
    case RankState::kEndingStart: {
      ImageOperation& operation = *draft.change(at).operation;
      operation.goal = OperationGoal::kParked;
      operation.reason = event.reason;
      return ok();
    }
    case RankState::kComing: {  // its node's answer may take long; the fence ends an instance that the node
                                // still starts
      Job& rank = draft.change(at);
      rank.unfenced_nodes.insert(rank.operation->to_node);
      return apply(draft, at, NotStarted{Error(ErrorCode::kAborted, event.reason)});
    }
    case RankState::kRunning: {
      if (draft.view().open_migration(draft.rank(at).id) != nullptr) return ok();  // the migration ends first
      const auto image = draft.view().image(draft.rank(at).segments.back().image);
      if (!image) {
        draft.act(at, Warning{fmt::format(
                          "rank {} is not parked again: the image from which it was started is unknown",
                          label(draft.rank(at)))});
        return ok();
      }
      ImageOperation operation;
      operation.goal = OperationGoal::kParked;
      operation.verb = "park";
      operation.reason = event.reason;
      operation.by_user = true;
      operation.image = *image;
      operation.ended_ms = image->barrier_ms;  // the rank did no work without the other ranks
      return apply(draft, at, OperationBegun{std::move(operation)});
    }
    default:
      return ok();
  }
}

Result<void> on(JobDraft& draft, std::size_t at, const NotParked& event) {
  if (state_of(draft.rank(at)) != RankState::kParking)
    return not_possible(draft.rank(at), "no snapshot of the job is being taken");
  Job& rank = draft.change(at);
  const ImageOperation operation = *rank.operation;
  rank.operation.reset();
  draft.log(at, "snapshot-failed", "job " + name_and_id(rank) + " was not parked: " + event.error.to_string(),
            rank.node());
  const bool interrupted = !operation.cancelled.empty() || event.error.code() == ErrorCode::kTimedOut;
  draft.act(at, TaskEnded{event.error, interrupted ? kImageExitInterrupted : kImageExitFailed});
  const wire::JobInstance* own = own_instance(rank, draft.view());
  if (own != nullptr) {
    CKPT_TRYV(apply(draft, at, report_of(*own)));
  }
  // The instance has left for an image, but that image does not exist. So the rank ends as stopped or as
  // lost.
  if (own != nullptr && own->phase == wire::JobPhase::kMoved && holds_gpu(draft.rank(at).state)) {
    if (operation.stops)
      end(draft, at, JobState::kExited, kExitOfStopped, "stopped while it was being suspended");
    else
      end(draft, at, JobState::kLost, kExitOfFailed, "it was suspended, but its image is missing");
  }
  return stop_after(draft, at, operation);
}

Result<void> on(JobDraft& draft, std::size_t at, const ImageStored& event) {
  if (state_of(draft.rank(at)) != RankState::kParking)
    return not_possible(draft.rank(at), "no snapshot of the job is being taken");
  if (!event.image)
    return apply(draft, at,
                 NotParked{Error(ErrorCode::kCorrupt, "The job ended, and its last image is damaged")});
  Job& rank = draft.change(at);
  ImageOperation& operation = *rank.operation;
  operation.image = *event.image;
  if (event.facts) rank.snapshot = event.facts;
  operation.ended_ms = event.image->barrier_ms;
  rank.fenced = operation.fenced;
  set_losses(operation, draft.now_ms());
  const ImageOperation done = operation;
  CKPT_TRYV(park(draft, at));
  return stop_after(draft, at, done);
}

Result<void> on(JobDraft& draft, std::size_t at, const InstancesEnded&) {
  const RankState state = state_of(draft.rank(at));
  if (state != RankState::kEndingStart && state != RankState::kEndingRest)
    return not_possible(draft.rank(at), "no instance of the job is being ended");
  ImageOperation& operation = *draft.change(at).operation;
  set_losses(operation, draft.now_ms());
  if (state == RankState::kEndingStart) {
    come(draft, at);
    return ok();
  }
  const ImageOperation done = operation;
  CKPT_TRYV(park(draft, at));
  return stop_after(draft, at, done);
}

Result<void> on(JobDraft& draft, std::size_t at, const RunsFromImage& event) {
  if (state_of(draft.rank(at)) != RankState::kComing)
    return not_possible(draft.rank(at), "it is not being started from an image");
  const Restored& restored = event.restored;
  Job& rank = draft.change(at);
  const ImageOperation operation = *rank.operation;
  rank.operation.reset();
  rank.segments.back().image = image_text(restored.image);  // the ordered image may have proved to be
                                                            // damaged, so that another image was used
  rank.segments.back().lost_ms = restored.lost_ms;
  rank.state = JobState::kRunning;
  rank.phase = wire::JobPhase::kRunning;
  rank.resumes_itself = false;
  rank.ended_ms = 0;
  rank.parked_ms = rank.last_active_ms = 0;
  if (!restored.note.empty()) draft.log(at, "image-damaged", restored.note, operation.to_node);
  draft.log(at, operation.verb == "resume" ? "job-resumed" : "job-restored",
            fmt::format("job {} continues at {} from {} as incarnation {}, {} ms of work are lost{}{}{}",
                        name_and_id(rank), to_text(restored.place), image_text(restored.image),
                        restored.incarnation, restored.lost_ms,
                        operation.reason.empty() ? "" : ": " + operation.reason,
                        restored.note.empty() ? "" : " (" + restored.note + ")",
                        restored.suspect.empty() ? "" : " (its image is suspect: " + restored.suspect + ")"),
            operation.to_node);
  // The work lost since a parked job's image was reported when the job was parked. The work that an older
  // image lacks has not been reported yet.
  const bool is_news = operation.verb == "restore" || !restored.note.empty();
  const bool is_lost = is_news && restored.lost_ms > 0;
  draft.act(at, TaskEnded{.exit_code = is_lost ? kImageExitRestored : 0,
                          .image = restored.image,
                          .restored = restored,
                          .fill_ns = event.fill_ns});
  const wire::JobInstance* own = own_instance(rank, draft.view());
  return own == nullptr ? ok() : apply(draft, at, report_of(*own));
}

Result<void> on(JobDraft& draft, std::size_t at, const NotStarted& event) {
  if (state_of(draft.rank(at)) != RankState::kComing)
    return not_possible(draft.rank(at), "it is not being started from an image");
  Job& rank = draft.change(at);
  const ImageOperation operation = *rank.operation;
  rank.operation.reset();
  // A job that was removed has no image of its own in which to be parked, so it fails.
  rank.state = operation.image.job == rank.id ? JobState::kParked : JobState::kFailed;
  rank.phase = wire::JobPhase::kExited;
  rank.resumes_itself = !operation.by_user;
  rank.reason =
      "it could not be started from " + image_text(operation.image) + ": " + event.error.to_string();
  rank.fenced = rank.incarnation;
  rank.ended_ms = operation.ended_ms;
  rank.last_active_ms = 0;
  // A job that was not parked before becomes the last in the resume order. So a failed attempt does not cost
  // another job its turn.
  if (rank.parked_ms == 0) rank.parked_ms = draft.now_ms();
  // The failed start has no log, so its segment is removed.
  if (rank.segments.size() > 1)
    rank.segments.pop_back();
  else
    rank.segments.back().incarnation = 0;
  draft.log(
      at, "restore-failed",
      "job " + name_and_id(rank) + " stays parked in " + image_text(operation.image) + ": " + rank.reason,
      operation.to_node);
  draft.act(at, TaskEnded{event.error, operation.stops ? kImageExitInterrupted : kImageExitFailed});
  return stop_after(draft, at, operation);
}

Result<void> on(JobDraft& draft, std::size_t at, const Stop& event) {
  const Job& rank = draft.rank(at);
  if (is_over(state_of(rank))) return ok();
  if (rank.operation && rank.operation->stops) {
    if (rank.operation->stop_grace_ms == event.grace_ms) return ok();
    Job& stopped = draft.change(at);
    stopped.stop_grace_ms = stopped.operation->stop_grace_ms = event.grace_ms;
    return ok();
  }
  if (state_of(rank) == RankState::kParked) {
    stop_parked(draft, at);
    return ok();
  }
  Job& stopped = draft.change(at);
  stopped.stop_requested = true;
  stopped.stop_grace_ms = event.grace_ms;
  return stopped.operation ? stop_operation(draft, at, event.grace_ms) : ok();
}

}  // namespace ckpt::coordinator::lifecycle
