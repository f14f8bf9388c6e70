// SPDX-License-Identifier: Apache-2.0
// The half of Evacuations that moves one job.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "coordinator/health/evacuations.h"
#include "libckpt/base/clock.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {
namespace {

using wire::HealthOutcome;

constexpr std::int64_t kPatientMoveMs = 600'000;
constexpr std::int64_t kEvacuationDowntimeNs = 200'000'000;  // as `migrate` has it
std::string why_of(const Evacuation& e) {
  return "[gpumigrate] evacuation: " + e.reason;
}

}  // namespace

void Evacuations::attempt(Evacuation& e) {
  const Job* job = deps_.jobs.find(e.job);
  if (job == nullptr) return enter(e, EvacuationState::kGone, "the job has ended");
  const bool ended = is_ended(job->state);
  if (ended && !(e.revive && e.outcome == HealthOutcome::kRestore))
    return enter(e, EvacuationState::kGone, "the job has ended");
  if (job->state == JobState::kParked) return enter(e, EvacuationState::kParked, "it is parked already");
  const Place here = job->ranks.front().place;
  if (here != e.from) return enter(e, EvacuationState::kGone, "it runs at " + to_text(here) + " already");
  if (const std::string reason = job->why_not_by_itself(); !reason.empty()) return wait(e, reason);
  if (deps_.policy.is_paused(e.from.node)) return wait(e, "the policy of " + e.from.node + " is paused");
  if (const Migration* open = deps_.migrations.open_of(e.job)) {
    if (e.outcome == HealthOutcome::kLive) {
      e.migration = open->id;
      e.to = open->to;
      return enter(e, EvacuationState::kMoving, migration_text(open->id) + " of it is open already");
    }
    // Its memory must not be read any more. Once it is over this is looked at again.
    tried_at_.erase(e.id);
    if (open->abort_cause == AbortCause::kNone) (void)deps_.migration_runner.abort(open->id, why_of(e));
    return wait(e, "waits for the end of " + migration_text(open->id));
  }
  if (!may_start(e)) return;
  if (e.outcome == HealthOutcome::kLive && !ended) return attempt_live(e, *job);
  attempt_restore(e, *job);
}

bool Evacuations::may_start(Evacuation& e) {
  const std::vector<const Evacuation*> all = deps_.table.pointers();
  const std::int64_t now = wall_clock_ms();
  if (const std::uint32_t attempts = attempts_of(e.job, all, now, limits_);
      attempts >= limits_.attempts_per_job) {
    enter(e, EvacuationState::kLeft,
          fmt::format("{} attempts within {} min are enough: an operator must see to it", attempts,
                      limits_.job_window_ms / 60'000));
    return false;
  }
  const bool counted = !e.started_ms.empty();
  if (!counted && !deps_.policy.breaker().open) {
    const std::uint32_t recent = recent_starts(all, now, deps_.policy.breaker().forgiven_ms, limits_);
    if (trips_breaker(recent, limits_)) {
      auto opened =
          deps_.policy.open_breaker(fmt::format("{} evacuations within {:.3g} min", recent,
                                                static_cast<double>(limits_.breaker_window_ms) / 60'000));
      if (!opened) spdlog::error("the breaker was not stored: {}", opened.error().to_string());
      wait(e, "the breaker is open");
      return false;
    }
  }
  if (deps_.policy.breaker().open) {
    wait(e, "the breaker is open");
    return false;
  }
  return true;
}

PlanHints Evacuations::hints_for(const Evacuation& e) const {
  PlanHints hints;
  if (e.outcome == HealthOutcome::kLive) {
    for (const FailedTarget& failed : e.failed)
      hints.closed.emplace_back(Scope(failed.to.node, failed.to.gpu), "a move there came to nothing");
  }
  hints.closed.emplace_back(Scope(e.from.node, e.from.gpu), "it is to be left");
  if (e.leave_node) hints.closed.emplace_back(Scope(e.from.node, std::nullopt), "its host is suspect");
  return hints;
}

// A rank of several: its migration is in the table soon, and attempt() finds it there.
void Evacuations::attempt_rank(Evacuation& e, const Job& rank) {
  const JobId gang = rank.spec.gang.id;
  if (deps_.gang_moves.is_beginning(gang)) return wait(e, "a move of its ranks is being prepared");
  MigrateRequest request = live_request(e, rank);
  request.ranks.push_back(rank.rank_number());
  const PlanHints hints = hints_for(e);
  const auto plan = deps_.gang_moves.plan(gang, request, hints.closed);
  if (!plan) return wait(e, plan.error().to_string());
  if (plan->places.empty()) return no_live_target(e, rank, plan->reason);
  e.started_ms.push_back(wall_clock_ms());
  deps_.table.save(e);
  wait(e, "the move of the rank is being prepared");
  deps_.gang_moves.begin_soon(gang, std::move(request), hints.closed, [this, id = e.id](const Error& error) {
    if (deps_.table.open().contains(id)) wait(deps_.table.at(id), error.to_string());
  });
}

void Evacuations::attempt_live(Evacuation& e, const Job& job) {
  if (e.failed.size() >= limits_.live_targets) return no_live_target(e, job, "enough targets were tried");
  if (job.spec.gang.id != 0) return attempt_rank(e, job);
  auto planned = deps_.planner.plan(job, "auto", hints_for(e));
  if (!planned) return wait(e, planned.error().to_string());
  const MigratePlan& plan = *planned;
  if (!plan.to) {
    const std::string obstacle = deps_.states.why_not_movable(job);
    if (obstacle.empty()) return no_live_target(e, job, plan.reason);
    deps_.moves.give_up_parking(job, plan, why_of(e));
    if (plan.passing) return wait(e, plan.reason);
    if (!e.urgent) return enter(e, EvacuationState::kLeft, plan.reason);
    return give_up_live(e, job, obstacle);
  }
  e.started_ms.push_back(wall_clock_ms());
  deps_.table.save(e);
  auto begun = deps_.moves.begin(job, live_request(e, job), plan);
  if (!begun) return wait(e, begun.error().to_string());
  e.migration = (*begun)->id;
  e.to = *plan.to;
  enter(e, EvacuationState::kMoving, migration_text(e.migration));
}

MigrateRequest Evacuations::live_request(const Evacuation& e, const Job& job) const {
  MigrateRequest request;
  request.options.max_downtime_ns = kEvacuationDowntimeNs;
  const std::int64_t base_ms = e.urgent ? deps_.config.evacuation_live_deadline_ms : kPatientMoveMs;
  request.timeout_ms = live_deadline_ms(base_ms, job.expected_bytes());
  request.reason = why_of(e);
  return request;
}

// No GPU that is left can take it. Those that were tried are no reason to wait.
void Evacuations::no_live_target(Evacuation& e, const Job& job, const std::string& reason) {
  if (e.failed.empty()) return no_target(e, reason, true);
  if (e.urgent) return give_up_live(e, job, "no live move of it came to its end (" + failed_text(e) + ")");
  // It is tried again at the next change, wherever there is free memory then.
  const std::string tried = failed_text(e);
  e.failed.clear();
  wait(e, tried + "; it is tried again");
}

void Evacuations::give_up_live(Evacuation& e, const Job& job, std::string reason) {
  e.not_live = std::move(reason);
  e.outcome = HealthOutcome::kRestore;
  attempt_restore(e, job);
}

void Evacuations::after_live(Evacuation& e, const Migration& migration) {
  const std::string outcome = migration_text(migration.id) + " " + std::string(to_string(migration.result)) +
                              (migration.error.empty() ? "" : ": " + migration.error);
  switch (migration.result) {
    case MigrationResult::kDone:
      if (migration.to == e.from) {  // it came here
        e.to.reset();
        tried_at_.erase(e.id);
        return enter(e, EvacuationState::kQueued, outcome);
      }
      e.lost_ms = 0;
      return enter(e, EvacuationState::kMoved, outcome + ", nothing is lost");
    case MigrationResult::kLost:
      return enter(e, EvacuationState::kLeft, outcome);
    case MigrationResult::kInterrupted:
      if (e.outcome == HealthOutcome::kLive)
        return enter(e, EvacuationState::kLeft, outcome + "; somebody aborted it");
      break;
    default:
      break;
  }
  e.to.reset();
  if (e.outcome == HealthOutcome::kLive && migration.to != e.from)
    e.failed.emplace_back(migration.to, outcome);
  // One that is not urgent is tried again at the next change.
  if (e.urgent)
    tried_at_.erase(e.id);
  else
    tried_at_[e.id] = generation_;
  enter(e, EvacuationState::kQueued, outcome + (e.urgent ? "; what is left is tried next" : ""));
}

void Evacuations::attempt_restore(Evacuation& e, const Job& job) {
  if (deps_.moves.give_up_parking(job, why_of(e))) return wait(e, "a suspend of it is being given up");
  const auto image = deps_.images.newest(e.job);
  if (!image) {
    // Its memory can be read: it rests in an image that is made of it.
    if (!e.failed.empty() && !is_ended(job.state) && check_has_images(job)) return park(e, true);
    if (deps_.planner.nodes_are_away()) return wait(e, "no node that is connected has an image of it");
    return enter(e, EvacuationState::kLeft,
                 (e.not_live.empty() ? "its memory must not be read any more" : e.not_live) +
                     ", and there is no image of it: it is left as it is");
  }
  const auto plan = deps_.planner.plan_restore(job, *image, "auto", hints_for(e));
  if (!plan) return wait(e, plan.error().to_string());
  const std::optional<Place> to = plan->to;
  if (!to) return no_target(e, plan->reason, false);
  e.started_ms.push_back(wall_clock_ms());
  e.to = to;
  enter(e, EvacuationState::kRestoring,
        (e.not_live.empty() ? "" : e.not_live + "; ") + std::string("from its newest image"));
  control::spawn(deps_.executor, "restoring " + job_text(e.job), restore(e.id, *to));
}

control::Task<> Evacuations::restore(EvacuationId id, Place to) {
  const Evacuation& asked = deps_.table.at(id);
  auto restored = co_await deps_.images.restore(asked.job, to, why_of(asked));
  Evacuation& e = deps_.table.at(id);
  if (e.state != EvacuationState::kRestoring) co_return;
  if (restored) {
    const Restored& there = *restored;
    e.to = there.place;
    e.lost_ms = there.lost_ms;
    enter(e, EvacuationState::kRestored,
          fmt::format("version {} of {}, {:.1f} s of work are lost", there.image.version, there.image.node,
                      static_cast<double>(there.lost_ms) / 1000));
    co_return;
  }
  const Error& error = restored.error();
  e.to.reset();
  if (error.code() == ErrorCode::kUnavailable)
    no_target(e, error.to_string(), false);
  else if (error.code() == ErrorCode::kNotFound)
    enter(e, EvacuationState::kLeft, error.to_string());
  else
    enter(e, EvacuationState::kQueued, "not restored: " + error.to_string());
  wake();
}

// Never killed: it rests in the vault, or runs on as it can until a GPU has the memory.
void Evacuations::no_target(Evacuation& e, const std::string& reason, bool job_runs) {
  const bool too_early = deps_.planner.nodes_may_come_back();
  if (e.urgent && !too_early) return park(e, job_runs || !e.failed.empty());
  const std::string note = reason + "; it goes as soon as there is room";
  if (e.state == EvacuationState::kQueued) return wait(e, note);
  enter(e, EvacuationState::kQueued, note);
}

void Evacuations::park(Evacuation& e, bool snapshot) {
  e.started_ms.push_back(wall_clock_ms());
  enter(e, EvacuationState::kParking, e.not_live.empty() ? "no GPU can take it" : e.not_live);
  control::spawn(deps_.executor, "parking " + job_text(e.job), rest(e.id, snapshot));
}

control::Task<> Evacuations::rest(EvacuationId id, bool snapshot) {
  const Evacuation& asked = deps_.table.at(id);
  auto parked = co_await deps_.images.park(asked.job, snapshot, why_of(asked));
  Evacuation& e = deps_.table.at(id);
  if (e.state != EvacuationState::kParking) co_return;
  if (parked) {
    enter(e, EvacuationState::kParked, "no GPU could take it: it goes on as soon as there is room");
  } else {
    tried_at_[id] = generation_;
    enter(e, EvacuationState::kQueued, "not parked: " + parked.error().to_string());
  }
}

}  // namespace ckpt::coordinator
