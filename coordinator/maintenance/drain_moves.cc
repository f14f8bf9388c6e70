// SPDX-License-Identifier: Apache-2.0
#include "coordinator/maintenance/drain_moves.h"

#include <utility>

#include "libckpt/base/clock.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {
namespace {

bool is_refusal(const Error& error) {
  return error.code() == ErrorCode::kRefused || error.code() == ErrorCode::kNotSupported;
}

std::vector<JobId> ranks_of(const DrainGroup& group) {
  std::vector<JobId> ranks;
  for (const DrainJob* entry : group.entries) ranks.push_back(entry->job);
  return ranks;
}

}  // namespace

std::vector<const Job*> LiveDrainView::live() const {
  std::vector<const Job*> found;
  for (const Job& job : jobs_.live()) found.push_back(&job);
  return found;
}

void DrainMoves::start(Drain& drain) {
  for (const DrainGroup& group : ready_groups(drain, view_)) try_group(drain, group);
}

GroupNow DrainMoves::now_of(const Drain& drain, const DrainGroup& group) const {
  const Job& job = *deps_.jobs.find(group.entries.front()->job);
  GroupNow now;
  now.is_preparing = deps_.moves.is_preparing(job);
  now.has_turn = leaving(drain.scope.node) < drain.parallel;
  now.is_movable = now.has_turn || deps_.moves.why_not_movable(job).empty();
  return now;
}

void DrainMoves::try_group(Drain& drain, const DrainGroup& group) {
  DrainTries& tries = tries_[drain.id];
  if (!tries.prepare_try(group, now_of(drain, group), news_)) return;
  const Job& job = *deps_.jobs.find(group.entries.front()->job);
  PlanHints hints;
  const auto plan = plan_for(drain.id, group, hints);
  const SourceFacts source = source_of(group, plan);
  const auto drained = [this](const Place& place) { return deps_.drains.is_drained(place); };
  switch (tries.after_plan(group, plan, source, drained)) {
    case DrainStep::kStay:
      return;
    case DrainStep::kMakeWay:
      deps_.moves.give_up_parking(job, *plan, drain_reason(drain));
      return;
    case DrainStep::kAskSource:
      return control::spawn(deps_.executor, "whether " + job_text(group.job) + " can leave",
                            ask_source(drain.id, group.job, source.leaves_node));
    case DrainStep::kBegin:
      return begin(drain, group, *plan, hints);
  }
}

SourceFacts DrainMoves::source_of(const DrainGroup& group, const Result<JobMovePlan>& plan) const {
  SourceFacts source;
  const bool is_possible = plan && plan->is_possible();
  for (std::size_t at = 0; at < group.entries.size(); ++at) {
    const Job& rank = *deps_.jobs.find(group.entries[at]->job);
    source.leaves_node = source.leaves_node || (is_possible && plan->places[at].node != rank.node());
    source.has_obstacles = source.has_obstacles || rank.obstacles > 0;
  }
  return source;
}

// Plans a move. Targets of failed moves are used last, and targets that refused a move are not used.
Result<JobMovePlan> DrainMoves::plan_for(DrainId id, const DrainGroup& group, PlanHints& hints) const {
  const DrainTries::Failures failures = tries_.at(id).failures_of(group);
  const std::vector<JobId> ranks = ranks_of(group);
  hints.closed = failures.all;
  auto plan = deps_.moves.plan(ranks, hints);
  if (!plan || plan->is_possible() || hints.closed.empty()) return plan;
  hints.closed = failures.refused;
  plan = deps_.moves.plan(ranks, hints);
  if (!plan || plan->is_possible() || failures.refusal.empty()) return plan;
  return as_refused(*std::move(plan), failures.refusal);
}

void DrainMoves::begin(const Drain& drain, const DrainGroup& group, const JobMovePlan& plan,
                       const PlanHints& hints) {
  MigrateRequest request;
  request.options.max_downtime_ns = kDefaultMaxDowntimeNs;
  request.timeout_ms = move_time_ms(drain, wall_clock_ms());
  request.reason = drain_reason(drain);
  auto begun = deps_.moves.begin(
      ranks_of(group), std::move(request), hints, plan,
      [this, id = drain.id, job = group.job](const Error& error) { on_not_begun(id, job, error); });
  DrainTries& tries = tries_[drain.id];
  if (!begun) {
    tries.note_not_begun(group.job, begun.error().to_string(), news_);
    tries.resolve_not_begun(group);
    return;
  }
  for (DrainJob* entry : group.entries) {
    if (const Migration* migration = *begun; migration != nullptr) {
      set_moving(*entry, *migration);
    } else {
      entry->state = DrainJobState::kWaiting;
      entry->reason = kBeingPrepared;
    }
  }
}

void DrainMoves::on_not_begun(DrainId id, JobId job, const Error& error) {
  if (const auto tries = tries_.find(id); tries != tries_.end())
    tries->second.note_not_begun(job, error.to_string(), news_);
  on_news();
}

control::Task<> DrainMoves::ask_source(DrainId id, JobId job, bool leaves_node) {
  const auto checked = co_await deps_.moves.check_source(job, leaves_node);
  const auto tries = tries_.find(id);
  if (tries == tries_.end()) co_return;
  // A node that does not answer does not block the job, because the move itself will report more.
  std::string refusal;
  if (!checked && is_refusal(checked.error())) refusal = checked.error().to_string();
  tries->second.note_answer(job, refusal, news_);
  on_news();
  deps_.jobs.changed().notify();
}

void DrainMoves::note_failures(DrainId id, const std::vector<FailedMove>& failed) {
  if (failed.empty()) return;
  tries_[id].note_failures(failed, news_);
  on_news();
}

unsigned DrainMoves::leaving(const std::string& node) const {
  unsigned count = 0;
  for (const Migration& migration : deps_.migrations.open()) count += migration.from.node == node ? 1 : 0;
  for (const auto& [job, claims] : deps_.migrations.claims())
    for (const MoveClaim& claim : claims) count += claim.from.node == node ? 1 : 0;
  for (const auto& [id, drain] : deps_.drains.all()) {
    if (!drain.open() || drain.scope.node != node) continue;
    for (const DrainJob& entry : drain.jobs) count += entry.state == DrainJobState::kRestoring ? 1 : 0;
  }
  return count;
}

}  // namespace ckpt::coordinator
