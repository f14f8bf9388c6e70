// SPDX-License-Identifier: Apache-2.0
#include "coordinator/maintenance/drain_moves.h"

#include <algorithm>
#include <utility>

#include "libckpt/base/clock.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {
namespace {

constexpr std::int64_t kLongestMoveMs = 600'000;
// Inventories until a job that was refused is looked at again: its program may have closed what kept it.
constexpr std::uint64_t kInventoriesUntilRetry = 12;

bool is_refusal(const Error& error) {
  return error.code() == ErrorCode::kRefused || error.code() == ErrorCode::kNotSupported;
}

}  // namespace

void explain(const MigratePlan& plan, DrainJob& entry, const std::function<bool(const Place&)>& drained) {
  entry.reason = plan.reason;
  entry.obstacles.clear();
  if (!plan.no_gpu) return;
  entry.reason = "no GPU: " + causes_text(plan.candidates, [&](const Place& place) {
                   return drained(place) ? std::string("being drained") : std::string();
                 });
  entry.obstacles = obstacles_of(plan.candidates);
}

void DrainMoves::start(Drain& drain) {
  std::vector<DrainJob*> ready;
  for (DrainJob& entry : drain.jobs) {
    if (entry.state == DrainJobState::kWaiting || entry.state == DrainJobState::kBlocked)
      ready.push_back(&entry);
  }
  std::erase_if(ready, [this](DrainJob* entry) { return leave_unconfirmed(*entry); });
  std::sort(ready.begin(), ready.end(),
            [](const DrainJob* a, const DrainJob* b) { return goes_before(*a, *b); });
  std::map<JobId, std::vector<DrainJob*>> ranks;
  for (DrainJob* entry : ready) {
    const Job* job = deps_.jobs.find(entry->job);
    if (job != nullptr && job->spec.gang.id != 0) ranks[job->spec.gang.id].push_back(entry);
  }
  for (const auto& [gang, entries] : ranks) move_ranks(drain, gang, entries);
  for (DrainJob* entry : ready) {
    const Job* job = deps_.jobs.find(entry->job);
    if (job == nullptr || job->spec.gang.id != 0) continue;
    if (leaving(drain.scope.node) < drain.parallel || !deps_.states.why_not_movable(*job).empty())
      move(drain, *entry, *job);
    else if (entry->state == DrainJobState::kWaiting && entry->reason.empty())
      entry->reason = "waits for its turn";
  }
}

bool DrainMoves::leave_unconfirmed(DrainJob& entry) const {
  const Job* job = deps_.jobs.find(entry.job);
  std::string reason = job == nullptr ? std::string() : job->why_not_by_itself();
  if (reason.empty()) return false;
  entry.state = DrainJobState::kBlocked;
  entry.obstacles.clear();
  entry.reason = std::move(reason);
  return true;
}

void DrainMoves::move(Drain& drain, DrainJob& entry, const Job& job) {
  Memory& memory = memory_[drain.id];
  const auto retry = memory.retry_after.find(entry.job);
  if (retry != memory.retry_after.end() && inventories_ <= retry->second) return;
  std::uint64_t& planned_at = memory.planned_at[entry.job];
  if (std::exchange(planned_at, generation_) == generation_) return;
  SourceAnswer& answer = memory.answers[entry.job];
  if (answer.is_known && !answer.refusal.empty() && inventories_ > answer.at + kInventoriesUntilRetry) {
    answer = SourceAnswer();
    answer.is_due = true;
    memory.failures.erase(entry.job);
  }
  auto plan = plan_for(job, memory.failures[entry.job]);
  entry.obstacles.clear();
  if (!plan) {
    entry.state = DrainJobState::kBlocked;
    entry.reason = plan.error().to_string();
  } else if (const MigratePlan& found = *plan; !found.to) {
    entry.state = found.passing ? DrainJobState::kWaiting : DrainJobState::kBlocked;
    explain(found, entry, [this](const Place& place) { return deps_.drains.is_drained(place); });
    deps_.moves.give_up_parking(job, found, drain_reason(drain));
  } else if (stays_by_its_node(drain, entry, job, *found.to)) {
    return;
  } else if (!begin(drain, entry, job, found)) {
    memory.retry_after[entry.job] = inventories_;
    if (++entry.attempts >= kMaxDrainAttempts) entry.state = DrainJobState::kFailed;
  }
}

// Where the last moves failed last, and where one was refused not at all.
Result<MigratePlan> DrainMoves::plan_for(const Job& job, const std::vector<Failure>& failures) const {
  PlanHints hints;
  PlanHints refusals;
  std::string reason;
  for (const Failure& failure : failures) {
    const Scope scope(failure.to.node, failure.to.gpu);
    hints.closed.emplace_back(scope, "the last move there failed");
    if (failure.refusal.empty()) continue;
    refusals.closed.emplace_back(scope, "a move there was refused");
    reason += (reason.empty() ? "" : "; ") + failure.refusal;
  }
  auto plan = deps_.planner.plan(job, "auto", hints);
  if (!plan || plan->to || hints.closed.empty()) return plan;
  plan = deps_.planner.plan(job, "auto", refusals);
  if (!plan || plan->to || reason.empty()) return plan;
  MigratePlan refused = *std::move(plan);
  refused.reason = reason;
  refused.no_gpu = refused.passing = false;
  return refused;
}

bool DrainMoves::stays_by_its_node(Drain& drain, DrainJob& entry, const Job& job, const Place& to) {
  SourceAnswer& answer = memory_[drain.id].answers[entry.job];
  const bool leaves_node = to.node != job.node();
  if (leaves_node && job.obstacles > 0 && !answer.is_known) answer.is_due = true;
  if (answer.is_known && !answer.refusal.empty()) {
    entry.state = DrainJobState::kBlocked;
    entry.reason = answer.refusal;
    return true;
  }
  if (!answer.is_due) return false;
  entry.state = DrainJobState::kWaiting;
  entry.reason = "its node is asked whether it can leave";
  if (answer.is_asked) return true;
  answer.is_asked = true;
  control::spawn(deps_.executor, "whether " + job_text(entry.job) + " can leave",
                 ask_source(drain.id, entry.job, leaves_node));
  return true;
}

control::Task<> DrainMoves::ask_source(DrainId id, JobId job, bool leaves_node) {
  const auto checked = co_await deps_.moves.check_source(job, leaves_node);
  const auto memory = memory_.find(id);
  if (memory == memory_.end()) co_return;
  SourceAnswer& answer = memory->second.answers[job];
  answer = SourceAnswer();
  answer.is_known = true;
  answer.at = inventories_;
  // A node that does not answer is no obstacle: the move tells more.
  if (!checked && is_refusal(checked.error())) answer.refusal = checked.error().to_string();
  on_news();
  deps_.jobs.changed().notify();
}

bool DrainMoves::begin(Drain& drain, DrainJob& entry, const Job& job, const MigratePlan& plan) {
  MigrateRequest request;
  request.options.max_downtime_ns = kDefaultMaxDowntimeNs;
  request.timeout_ms = std::clamp(drain.deadline_ms - wall_clock_ms(), kShortestMoveMs, kLongestMoveMs);
  request.reason = drain_reason(drain);
  auto begun = deps_.moves.begin(job, request, plan);
  if (!begun) {
    entry.state = DrainJobState::kWaiting;
    entry.reason = begun.error().to_string();
    return false;
  }
  const Migration& migration = **begun;
  entry.state = DrainJobState::kMoving;
  entry.migration = migration.id;
  entry.to = migration.to;
  entry.reason = migration_text(migration.id) + " is " + std::string(to_string(migration.phase));
  return true;
}

// They count as one move: what one of them waits for, all do.
void DrainMoves::move_ranks(Drain& drain, JobId gang, const std::vector<DrainJob*>& entries) {
  Memory& memory = memory_[drain.id];
  const auto all = [&entries](DrainJobState state, const std::string& reason) {
    for (DrainJob* entry : entries) {
      entry->state = state;
      entry->reason = reason;
    }
  };
  if (const auto failed = memory.not_begun.find(gang); failed != memory.not_begun.end()) {
    const std::string reason = failed->second;
    memory.not_begun.erase(failed);
    bool is_given_up = false;
    for (DrainJob* entry : entries) is_given_up = ++entry->attempts >= kMaxDrainAttempts || is_given_up;
    return all(is_given_up ? DrainJobState::kFailed : DrainJobState::kWaiting, reason);
  }
  if (deps_.gang_moves.is_beginning(gang)) return;
  if (leaving(drain.scope.node) >= drain.parallel) return all(DrainJobState::kWaiting, "waits for its turn");
  const auto retry = memory.retry_after.find(gang);
  if (retry != memory.retry_after.end() && inventories_ <= retry->second) return;
  if (std::exchange(memory.planned_at[gang], generation_) == generation_) return;
  MigrateRequest request;
  request.options.max_downtime_ns = kDefaultMaxDowntimeNs;
  request.timeout_ms = std::clamp(drain.deadline_ms - wall_clock_ms(), kShortestMoveMs, kLongestMoveMs);
  request.reason = drain_reason(drain);
  for (const DrainJob* entry : entries) request.ranks.push_back(deps_.jobs.find(entry->job)->rank_number());
  const auto plan = deps_.gang_moves.plan(gang, request);
  // The cause of a refusal may pass, such as a rank that is paused for an image.
  if (!plan) return all(DrainJobState::kWaiting, plan.error().to_string());
  if (plan->places.empty()) return all(DrainJobState::kBlocked, plan->reason);
  all(DrainJobState::kWaiting, "the move of its ranks is being prepared");
  deps_.gang_moves.begin_soon(gang, request, {}, [this, id = drain.id, gang](const Error& error) {
    Memory& later = memory_[id];
    later.not_begun[gang] = error.to_string();
    later.retry_after[gang] = inventories_;
    on_news();
  });
}

void DrainMoves::note_failure(DrainId id, JobId job, const Place& to, const std::string& refusal) {
  Memory& memory = memory_[id];
  std::vector<Failure>& failures = memory.failures[job];
  std::erase_if(failures, [&to](const Failure& known) { return known.to == to || known.refusal.empty(); });
  failures.push_back({to, refusal});
  on_news();
  if (refusal.empty()) {
    memory.retry_after[job] = inventories_;
    return;
  }
  memory.answers[job] = SourceAnswer();
  memory.answers[job].is_due = true;
}

unsigned DrainMoves::leaving(const std::string& node) const {
  unsigned count = 0;
  for (const Migration& migration : deps_.migrations.open()) count += migration.from.node == node ? 1 : 0;
  for (const auto& [id, drain] : deps_.drains.all()) {
    if (!drain.open() || drain.scope.node != node) continue;
    for (const DrainJob& entry : drain.jobs) count += entry.state == DrainJobState::kRestoring ? 1 : 0;
  }
  return count;
}

}  // namespace ckpt::coordinator
