// SPDX-License-Identifier: Apache-2.0
#include "coordinator/maintenance/drain_progress.h"

#include <algorithm>

#include "libckpt/base/clock.h"

namespace ckpt::coordinator {
namespace {

// A restore of it is under way to the place.
bool is_restored_to(const Scope& scope, const Job& job) {
  return job.operation && job.operation->goal == OperationGoal::kRunning &&
         scope.covers(Place(job.operation->to_node, job.operation->to_gpu));
}

std::string ended_text(const Job& job) {
  if (job.state == JobState::kExited && job.exit_code >= 0)
    return "it ended with exit code " + std::to_string(job.exit_code);
  return job.reason.empty() ? "it ended" : "it ended: " + job.reason;
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
  entry.from = job.ranks.front().place;
  return entry;
}

bool DrainProgress::reconcile(Drain& drain) {
  bool coming = false;
  for (const Job& job : jobs_.live()) {
    if (is_ended(job.state)) continue;
    const bool here = is_within(drain.scope, job);
    if (here && drain.find(job.id) == nullptr) drain.jobs.push_back(drain_job_of(job));
    const Migration* open = here ? nullptr : migrations_.open_of(job.id);
    coming = coming || (open != nullptr && drain.scope.covers(open->to)) || is_restored_to(drain.scope, job);
  }
  for (DrainJob& entry : drain.jobs) {
    const Job* job = jobs_.find(entry.job);
    if (job != nullptr && !is_ended(job->state)) {
      look_at(drain, entry, *job);
    } else if (!is_gone(entry.state) && entry.state != DrainJobState::kRestoring) {
      entry.state =
          job != nullptr && job->state == JobState::kLost ? DrainJobState::kLost : DrainJobState::kEnded;
      entry.reason = job == nullptr ? "it ended" : ended_text(*job);
    }
  }
  return coming;
}

void DrainProgress::look_at(Drain& drain, DrainJob& entry, const Job& job) {
  if (entry.state == DrainJobState::kRestoring) return;  // restore() reports how that ends
  if (!is_within(drain.scope, job)) {
    if (is_gone(entry.state)) return;
    if (job.state == JobState::kParked) {
      entry.state = DrainJobState::kEnded;
      entry.reason = "it is parked";
      return;
    }
    const Migration* last = migrations_.find(entry.migration);
    if (last != nullptr && last->open()) return;  // its measurements are to come
    entry.state = DrainJobState::kMoved;
    entry.to = job.ranks.front().place;
    entry.downtime_ms = job.last_downtime_ms;
    entry.reason.clear();
    return;
  }
  if (is_gone(entry.state)) entry.state = DrainJobState::kWaiting;  // it came back
  entry.state_bytes = job.state_bytes();
  entry.priority = job.spec.priority;
  if (const Migration* open = migrations_.open_of(job.id)) {
    entry.state = DrainJobState::kMoving;
    entry.migration = open->id;
    entry.to = open->to;
    entry.reason = migration_text(open->id) + " is " + std::string(to_string(open->phase));
    return;
  }
  if (entry.state != DrainJobState::kMoving) return;
  const Migration* last = migrations_.find(entry.migration);
  if (last != nullptr && last->open()) return;
  if (last == nullptr)
    entry.state = DrainJobState::kWaiting;
  else
    on_migration_ended(drain, entry, *last);
}

// It is over, and the job is still here.
void DrainProgress::on_migration_ended(Drain& drain, DrainJob& entry, const Migration& migration) {
  entry.to.reset();
  entry.reason = migration_text(migration.id) + " " + std::string(to_string(migration.result)) +
                 (migration.error.empty() ? "" : ": " + migration.error);
  const bool by_deadline = migration.result == MigrationResult::kTimedOut &&
                           wall_clock_ms() >= drain.deadline_ms - kShortestMoveMs;
  if (migration.result == MigrationResult::kInterrupted) {
    entry.state = DrainJobState::kLeft;
    entry.reason += "; somebody aborted it";
    return;
  }
  entry.state = DrainJobState::kWaiting;
  if (migration.result == MigrationResult::kDone || by_deadline) return;
  const bool refused = migration.result == MigrationResult::kRefused;
  moves_.note_failure(drain.id, entry.job, migration.to, refused ? entry.reason : "");
  if (++entry.attempts >= kMaxDrainAttempts) entry.state = DrainJobState::kFailed;
}

}  // namespace ckpt::coordinator
