// SPDX-License-Identifier: Apache-2.0
// The half of Evacuations that moves one job, as policies/evacuation/attempts.h decides.
#include <spdlog/spdlog.h>

#include "coordinator/health/evacuations.h"
#include "libckpt/base/clock.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {
namespace {

constexpr std::int64_t kPatientMoveMs = 600'000;
constexpr std::int64_t kEvacuationDowntimeNs = 200'000'000;  // the downtime limit of an evacuation's live
                                                             // move; the same value as the default of
                                                             // `migrate`
std::string why_of(const Evacuation& e) {
  return "[gpumigrate] evacuation: " + e.reason;
}

}  // namespace

ClusterFacts Evacuations::facts() const {
  ClusterFacts facts;
  facts.may_come_back = deps_.planner.nodes_may_come_back();
  facts.are_away = deps_.planner.nodes_are_away();
  return facts;
}

void Evacuations::attempt(Evacuation& e) {
  EvacuationView view;
  view.job = deps_.jobs.find(e.job);
  view.open = deps_.migrations.open_of(e.job);
  view.is_paused = deps_.policy.is_paused(e.from.node);
  view.is_breaker_open = deps_.policy.breaker().open;
  view.forgiven_ms = deps_.policy.breaker().forgiven_ms;
  view.all = deps_.table.pointers();
  view.now_ms = wall_clock_ms();
  carry_out(e, begin_attempt(e, view, limits_));
}

void Evacuations::carry_out(Evacuation& e, const EvacuationStep& step) {
  using Kind = EvacuationStep::Kind;
  if (step.again == EvacuationStep::Again::kAtOnce) tried_at_.erase(e.id);
  if (step.again == EvacuationStep::Again::kAtChange) tried_at_[e.id] = generation_;
  switch (step.kind) {
    case Kind::kAbortMove:
      if (step.migration != 0) (void)deps_.migration_runner.abort(step.migration, why_of(e));
      return wait(e, step.note);
    case Kind::kOpenBreaker:
      if (auto opened = deps_.policy.open_breaker(step.reason); !opened)
        spdlog::error("the state of the circuit breaker was not stored: {}", opened.error().to_string());
      return wait(e, step.note);
    case Kind::kWait:
      return wait(e, step.note);
    case Kind::kEnter:
      return enter(e, step.state, step.note);
    case Kind::kLive:
      return attempt_live(e);
    case Kind::kImage:
      return attempt_restore(e);
    case Kind::kBeginRestore:
      e.started_ms.push_back(wall_clock_ms());
      enter(e, step.state, step.note);
      return control::spawn(deps_.executor, "restoring " + job_text(e.job), restore(e.id, *e.to));
    case Kind::kPark:
      e.started_ms.push_back(wall_clock_ms());
      enter(e, step.state, step.note);
      return control::spawn(deps_.executor, "parking " + job_text(e.job), park(e.id, step.snapshot));
    case Kind::kBeginLive:
      break;  // attempt_live() begins the move, because it has the plan
  }
}

void Evacuations::attempt_live(Evacuation& e) {
  const Job& job = *deps_.jobs.find(e.job);
  if (const auto step = before_live_plan(e, deps_.moves.is_preparing(job), facts(), limits_))
    return carry_out(e, *step);
  PlanHints hints;
  hints.closed = closed_for(e);
  const auto plan = deps_.moves.plan({job.id}, hints);
  const EvacuationStep step = after_live_plan(e, plan, facts());
  if (step.kind == EvacuationStep::Kind::kBeginLive) return begin_live(e, job, hints, *plan);
  if (step.makes_way) deps_.moves.give_up_parking(job, *plan, why_of(e));
  carry_out(e, step);
}

// If the move is only being prepared, its migration appears in the table soon, and attempt() finds it there.
void Evacuations::begin_live(Evacuation& e, const Job& job, const PlanHints& hints, const JobMovePlan& plan) {
  e.started_ms.push_back(wall_clock_ms());
  deps_.table.save(e);
  auto begun =
      deps_.moves.begin({job.id}, live_request(e, job), hints, plan, [this, id = e.id](const Error& error) {
        if (deps_.table.open().contains(id)) wait(deps_.table.at(id), error.to_string());
      });
  if (!begun) return wait(e, begun.error().to_string());
  const Migration* migration = *begun;
  if (migration == nullptr) {
    // A preparation that has already failed has set the evacuation's note.
    if (deps_.moves.is_preparing(job)) wait(e, "the move of the rank is being prepared");
    return;
  }
  e.migration = migration->id;
  e.to = plan.places.front();
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

void Evacuations::attempt_restore(Evacuation& e) {
  const Job& job = *deps_.jobs.find(e.job);
  if (deps_.moves.give_up_parking(job, why_of(e))) return wait(e, "a suspend of the job is being cancelled");
  const auto image = deps_.images.newest(e.job);
  if (!image) return carry_out(e, without_image(e, job, deps_.images.may_park(e.job), facts()));
  PlanHints hints;
  hints.closed = closed_for(e);
  const auto plan = deps_.planner.plan_restore(job, *image, "auto", hints);
  if (!plan) return wait(e, plan.error().to_string());
  carry_out(e, after_restore_plan(e, plan->to, plan->reason, facts()));
}

control::Task<> Evacuations::restore(EvacuationId id, Place to) {
  const Evacuation& asked = deps_.table.at(id);
  const auto restored = co_await deps_.images.restore(asked.job, to, why_of(asked));
  Evacuation& e = deps_.table.at(id);
  if (e.state != EvacuationState::kRestoring) co_return;
  carry_out(e, after_restore(e, restored, facts()));
  wake();
}

control::Task<> Evacuations::park(EvacuationId id, bool snapshot) {
  const Evacuation& asked = deps_.table.at(id);
  const auto parked = co_await deps_.images.park(asked.job, snapshot, why_of(asked));
  Evacuation& e = deps_.table.at(id);
  if (e.state == EvacuationState::kParking) carry_out(e, after_park(parked));
}

}  // namespace ckpt::coordinator
