// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/evacuation/attempts.h"

#include <fmt/format.h>

#include <utility>

#include "coordinator/policies/evacuation/findings.h"

namespace ckpt::coordinator {
namespace {

using wire::HealthOutcome;
using StepKind = EvacuationStep::Kind;
using TryAgain = EvacuationStep::Again;

EvacuationStep step(StepKind kind) {
  EvacuationStep next;
  next.kind = kind;
  return next;
}

EvacuationStep wait(std::string note) {
  EvacuationStep next = step(StepKind::kWait);
  next.note = std::move(note);
  return next;
}

EvacuationStep enter(EvacuationState state, std::string note) {
  EvacuationStep next = step(StepKind::kEnter);
  next.state = state;
  next.note = std::move(note);
  return next;
}

EvacuationStep queue(std::string note, TryAgain again) {
  EvacuationStep next = enter(EvacuationState::kQueued, std::move(note));
  next.again = again;
  return next;
}

EvacuationStep park(const Evacuation& e, bool snapshot) {
  EvacuationStep next = step(StepKind::kPark);
  next.state = EvacuationState::kParking;
  next.note = e.not_live.empty() ? "no GPU can hold the job" : e.not_live;
  next.snapshot = snapshot;
  return next;
}

EvacuationStep join_or_abort(Evacuation& e, const Migration& open) {
  if (e.outcome == HealthOutcome::kLive) {
    e.migration = open.id;
    e.to = open.to;
    return enter(EvacuationState::kMoving, migration_text(open.id) + " of the job is already open");
  }
  // The move is aborted, because the job's memory must not be read any more. This evacuation is tried again
  // once the migration is over.
  EvacuationStep next = wait("waits for the end of " + migration_text(open.id));
  next.kind = StepKind::kAbortMove;
  if (open.abort_cause == AbortCause::kNone) next.migration = open.id;
  next.again = TryAgain::kAtOnce;
  return next;
}

// Returns the step that delays or ends the evacuation, or nullopt if the attempt may start.
std::optional<EvacuationStep> held_back(const Evacuation& e, const EvacuationView& view,
                                        const EvacuationLimits& limits) {
  const std::uint32_t attempts = attempts_of(e.job, view.all, view.now_ms, limits);
  if (attempts >= limits.attempts_per_job)
    return enter(EvacuationState::kLeft,
                 fmt::format("{} attempts within {} min, which is the limit: an operator must act", attempts,
                             limits.job_window_ms / 60'000));
  if (view.is_breaker_open) return wait("the circuit breaker is open");
  if (!e.started_ms.empty()) return std::nullopt;
  const std::uint32_t recent = recent_starts(view.all, view.now_ms, view.forgiven_ms, limits);
  if (!trips_breaker(recent, limits)) return std::nullopt;
  EvacuationStep next = wait("the circuit breaker is open");
  next.kind = StepKind::kOpenBreaker;
  next.reason = fmt::format("{} evacuations within {:.3g} min", recent,
                            static_cast<double>(limits.breaker_window_ms) / 60'000);
  return next;
}

// Returns the step for a job for which there is no target. The job is never killed: it is parked in an image,
// or continues to run until a GPU has the memory.
EvacuationStep no_target(const Evacuation& e, const std::string& reason, bool job_runs,
                         const ClusterFacts& facts) {
  if (e.urgent && !facts.may_come_back) return park(e, job_runs || !e.failed.empty());
  const std::string note = reason + "; the job is moved once a GPU has enough free memory";
  if (e.state == EvacuationState::kQueued) return wait(note);
  return enter(EvacuationState::kQueued, note);
}

EvacuationStep give_up_live(Evacuation& e, std::string reason) {
  e.not_live = std::move(reason);
  e.outcome = HealthOutcome::kRestore;
  return step(StepKind::kImage);
}

// Returns the step if no remaining GPU can take the job live. Targets that were already tried are not a
// reason to wait.
EvacuationStep no_live_target(Evacuation& e, const std::string& reason, const ClusterFacts& facts) {
  if (e.failed.empty()) return no_target(e, reason, true, facts);
  if (e.urgent) return give_up_live(e, "every live move of the job failed (" + failed_text(e) + ")");
  // All targets are permitted again. The move is tried at the next change, on any GPU that then has enough
  // free memory.
  const std::string tried = failed_text(e);
  e.failed.clear();
  return wait(tried + "; the move is tried again");
}

}  // namespace

EvacuationStep begin_attempt(Evacuation& e, const EvacuationView& view, const EvacuationLimits& limits) {
  if (view.job == nullptr) return enter(EvacuationState::kGone, "the job has ended");
  const Job& job = *view.job;
  const bool ended = is_ended(job.state);
  if (ended && !(e.revive && e.outcome == HealthOutcome::kRestore))
    return enter(EvacuationState::kGone, "the job has ended");
  if (job.state == JobState::kParked) return enter(EvacuationState::kParked, "it is parked already");
  const Place here = job.place();
  if (here != e.from) return enter(EvacuationState::kGone, "it runs at " + to_text(here) + " already");
  if (const std::string reason = job.why_not_by_itself(); !reason.empty()) return wait(reason);
  if (view.is_paused) return wait("the policy of " + e.from.node + " is paused");
  if (view.open != nullptr) return join_or_abort(e, *view.open);
  if (const auto held = held_back(e, view, limits)) return *held;
  return step(e.outcome == HealthOutcome::kLive && !ended ? StepKind::kLive : StepKind::kImage);
}

std::optional<EvacuationStep> before_live_plan(Evacuation& e, bool is_preparing, const ClusterFacts& facts,
                                               const EvacuationLimits& limits) {
  if (e.failed.size() >= limits.live_targets)
    return no_live_target(e, "the maximum number of targets was tried", facts);
  if (is_preparing) return wait("a move of its ranks is being prepared");
  return std::nullopt;
}

EvacuationStep after_live_plan(Evacuation& e, const Result<JobMovePlan>& plan, const ClusterFacts& facts) {
  if (!plan) return wait(plan.error().to_string());
  if (plan->is_possible()) return step(StepKind::kBeginLive);
  if (plan->obstacle.empty()) return no_live_target(e, plan->reason, facts);
  EvacuationStep next = plan->passing ? wait(plan->reason)
                        : !e.urgent   ? enter(EvacuationState::kLeft, plan->reason)
                                      : give_up_live(e, plan->obstacle);
  next.makes_way = true;
  return next;
}

ClosedScopes closed_for(const Evacuation& e) {
  ClosedScopes closed;
  if (e.outcome == HealthOutcome::kLive) {
    for (const FailedTarget& failed : e.failed)
      closed.emplace_back(Scope(failed.to.node, failed.to.gpu), "a move to this GPU failed");
  }
  closed.emplace_back(Scope(e.from.node, e.from.gpu), "the GPU is being evacuated");
  if (e.leave_node) closed.emplace_back(Scope(e.from.node, std::nullopt), "its host is suspect");
  return closed;
}

EvacuationStep after_live(Evacuation& e, const Migration& migration) {
  const std::string outcome = outcome_text(migration);
  switch (migration.result) {
    case MigrationResult::kDone:
      if (migration.to == e.from) {  // the migration moved the job to this GPU
        e.to.reset();
        return queue(outcome, TryAgain::kAtOnce);
      }
      e.lost_ms = 0;
      return enter(EvacuationState::kMoved, outcome + ", nothing is lost");
    case MigrationResult::kLost:
      return enter(EvacuationState::kLeft, outcome);
    case MigrationResult::kInterrupted:
      if (e.outcome == HealthOutcome::kLive)
        return enter(EvacuationState::kLeft, outcome + "; a user aborted it");
      break;
    default:
      break;
  }
  e.to.reset();
  if (e.outcome == HealthOutcome::kLive && migration.to != e.from)
    e.failed.emplace_back(migration.to, outcome);
  // An evacuation that is not urgent is tried again at the next change.
  if (!e.urgent) return queue(outcome, TryAgain::kAtChange);
  return queue(outcome + "; the remaining targets are tried next", TryAgain::kAtOnce);
}

EvacuationStep without_image(Evacuation& e, const Job& job, bool may_park, const ClusterFacts& facts) {
  // The job's memory can still be read. So a new image is taken and the job is parked in it.
  if (!e.failed.empty() && !is_ended(job.state) && may_park) return park(e, true);
  if (facts.are_away) return wait("no connected node has an image of the job");
  return enter(EvacuationState::kLeft,
               (e.not_live.empty() ? "its memory must no longer be read" : e.not_live) +
                   ", and the job has no image: no action is taken");
}

EvacuationStep after_restore_plan(Evacuation& e, const std::optional<Place>& to, const std::string& reason,
                                  const ClusterFacts& facts) {
  if (!to) return no_target(e, reason, false, facts);
  e.to = to;
  EvacuationStep next = enter(EvacuationState::kRestoring, (e.not_live.empty() ? "" : e.not_live + "; ") +
                                                               std::string("from its newest image"));
  next.kind = StepKind::kBeginRestore;
  return next;
}

EvacuationStep after_restore(Evacuation& e, const Result<Restored>& restored, const ClusterFacts& facts) {
  if (restored) {
    e.to = restored->place;
    e.lost_ms = restored->lost_ms;
    return enter(EvacuationState::kRestored,
                 fmt::format("version {} of {}, {:.1f} s of work are lost", restored->image.version,
                             restored->image.node, static_cast<double>(restored->lost_ms) / 1000));
  }
  const Error& error = restored.error();
  e.to.reset();
  if (error.code() == ErrorCode::kUnavailable) return no_target(e, error.to_string(), false, facts);
  if (error.code() == ErrorCode::kNotFound) return enter(EvacuationState::kLeft, error.to_string());
  return enter(EvacuationState::kQueued, "not restored: " + error.to_string());
}

EvacuationStep after_park(const Result<void>& parked) {
  if (parked)
    return enter(EvacuationState::kParked,
                 "no GPU could hold the job: it resumes as soon as a GPU has enough memory");
  return queue("not parked: " + parked.error().to_string(), TryAgain::kAtChange);
}

std::optional<EvacuationStep> after_restart(Evacuation& e, const Job* job) {
  if (e.state != EvacuationState::kRestoring && e.state != EvacuationState::kParking) return std::nullopt;
  const bool elsewhere = job != nullptr && !is_ended(job->state) && !is_on(e.from, *job);
  if (e.state != EvacuationState::kRestoring || !elsewhere)
    return enter(EvacuationState::kQueued, "the coordinator was started again");
  e.to = job->place();
  return enter(EvacuationState::kRestored,
               "restored from its newest image before the coordinator was started again");
}

}  // namespace ckpt::coordinator
