// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/drain/drain_progress.h"

#include <algorithm>

#include "coordinator/policies/job_move_plan.h"

namespace ckpt::coordinator {
namespace {

// Returns whether a restore of the job to the place is under way.
bool is_restored_to(const Scope& scope, const Job& job) {
  return job.operation && job.operation->goal == OperationGoal::kRunning &&
         scope.covers(Place(job.operation->to_node, job.operation->to_gpu));
}

std::string ended_text(const Job& job) {
  if (job.state == JobState::kExited && job.exit_code >= 0)
    return "it ended with exit code " + std::to_string(job.exit_code);
  return job.reason.empty() ? "it ended" : "it ended: " + job.reason;
}

FailedMove failed_move_of(const Job& job, const Migration& migration) {
  FailedMove failed;
  failed.job = job.whole();
  failed.move = migration.gang_move != 0 ? migration.gang_move : migration.id;
  failed.to = migration.to;
  // Ranks that move together have one outcome, which does not name the target that refused.
  const bool has_refused = migration.result == MigrationResult::kRefused && migration.gang_move == 0;
  if (has_refused) failed.refusal = outcome_text(migration);
  return failed;
}

// Records the end of a migration whose job is still at the drained place.
void take_in_end(const Drain& drain, DrainJob& entry, const Job& job, const Migration& migration,
                 std::int64_t now_ms, std::vector<FailedMove>& failed) {
  entry.to.reset();
  entry.reason = outcome_text(migration);
  const bool by_deadline =
      migration.result == MigrationResult::kTimedOut && now_ms >= drain.deadline_ms - kShortestMoveMs;
  if (migration.result == MigrationResult::kInterrupted) {
    entry.state = DrainJobState::kLeft;
    entry.reason += "; a user aborted the move";
    return;
  }
  entry.state = DrainJobState::kWaiting;
  if (migration.result == MigrationResult::kDone || by_deadline) return;
  failed.push_back(failed_move_of(job, migration));
  if (++entry.attempts >= kMaxDrainAttempts) entry.state = DrainJobState::kFailed;
}

void take_in_leave(DrainJob& entry, const Job& job, const DrainView& view) {
  if (is_gone(entry.state)) return;
  if (job.state == JobState::kParked) {
    entry.state = DrainJobState::kEnded;
    entry.reason = "it is parked";
    return;
  }
  const Migration* last = view.migration(entry.migration);
  if (last != nullptr && last->open()) return;  // the migration's measurements have not arrived yet
  entry.state = DrainJobState::kMoved;
  entry.to = job.place();
  entry.downtime_ms = job.last_downtime_ms;
  entry.reason.clear();
}

void look_at(const Drain& drain, DrainJob& entry, const Job& job, const DrainView& view, std::int64_t now_ms,
             std::vector<FailedMove>& failed) {
  if (entry.state == DrainJobState::kRestoring) return;  // the restore itself reports the outcome
  if (!is_within(drain.scope, job)) return take_in_leave(entry, job, view);
  if (is_gone(entry.state)) entry.state = DrainJobState::kWaiting;  // the job returned to the place
  entry.state_bytes = job.state_bytes();
  entry.priority = job.spec.priority;
  if (const Migration* open = view.open_of(job.id)) return set_moving(entry, *open);
  if (entry.state != DrainJobState::kMoving) return;
  const Migration* last = view.migration(entry.migration);
  if (last != nullptr && last->open()) return;
  if (last == nullptr)
    entry.state = DrainJobState::kWaiting;
  else
    take_in_end(drain, entry, job, *last, now_ms, failed);
}

}  // namespace

bool is_within(const Scope& scope, const Job& job) {
  return holds_gpu(job.state) && std::any_of(job.ranks.begin(), job.ranks.end(),
                                             [&](const JobRank& rank) { return scope.covers(rank.place); });
}

DrainJob drain_job_of(const Job& job) {
  DrainJob entry;
  entry.job = job.id;
  entry.name = job.spec.name;
  entry.priority = job.spec.priority;
  entry.state_bytes = job.state_bytes();
  entry.from = job.place();
  return entry;
}

void set_moving(DrainJob& entry, const Migration& migration) {
  entry.state = DrainJobState::kMoving;
  entry.migration = migration.id;
  entry.to = migration.to;
  entry.reason = migration_text(migration.id) + " is " + std::string(to_string(migration.phase));
}

DrainProgress reconcile(Drain& drain, const DrainView& view, std::int64_t now_ms) {
  DrainProgress progress;
  for (const Job* job : view.live()) {
    if (is_ended(job->state)) continue;
    const bool here = is_within(drain.scope, *job);
    if (here && drain.find(job->id) == nullptr) drain.jobs.push_back(drain_job_of(*job));
    const Migration* open = here ? nullptr : view.open_of(job->id);
    progress.coming = progress.coming || (open != nullptr && drain.scope.covers(open->to)) ||
                      is_restored_to(drain.scope, *job);
  }
  for (DrainJob& entry : drain.jobs) {
    const Job* job = view.job(entry.job);
    if (job != nullptr && !is_ended(job->state)) {
      look_at(drain, entry, *job, view, now_ms, progress.failed);
    } else if (!is_gone(entry.state) && entry.state != DrainJobState::kRestoring) {
      entry.state =
          job != nullptr && job->state == JobState::kLost ? DrainJobState::kLost : DrainJobState::kEnded;
      entry.reason = job == nullptr ? "it ended" : ended_text(*job);
    }
  }
  return progress;
}

std::vector<JobId> begin_restores(Drain& drain, const DrainView& view, unsigned leaving,
                                  bool deadline_passed) {
  std::vector<JobId> begun;
  if (drain.fallback != Fallback::kRestore) return begun;
  for (DrainJob& entry : drain.jobs) {
    const bool stuck = entry.state == DrainJobState::kBlocked || entry.state == DrainJobState::kFailed ||
                       (deadline_passed && entry.state == DrainJobState::kWaiting);
    const Job* job = view.job(entry.job);
    if (job != nullptr && job->unconfirmed) continue;
    if (!stuck || entry.restore_tried || leaving + begun.size() >= drain.parallel) continue;
    entry.restore_tried = true;
    entry.state = DrainJobState::kRestoring;
    entry.reason = "it could not be moved (" + entry.reason + "): restoring its newest image";
    begun.push_back(entry.job);
  }
  return begun;
}

}  // namespace ckpt::coordinator
