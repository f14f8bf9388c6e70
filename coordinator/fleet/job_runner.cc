// SPDX-License-Identifier: Apache-2.0
#include "coordinator/fleet/job_runner.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>
#include <utility>

#include "libckpt/base/clock.h"
#include "libckpt/base/fault.h"

namespace ckpt::coordinator {
namespace {

using lifecycle::RankState;
using lifecycle::state_of;

// Returns the crash point that follows the write of this state change.
std::optional<FaultPoint> fault_behind(RankState from, RankState to) {
  if (from == to) return std::nullopt;
  if (to == RankState::kComing) return FaultPoint::kCoordinatorStartDurable;
  if (to == RankState::kParked && from != RankState::kComing) return FaultPoint::kCoordinatorParkedDurable;
  const bool begins =
      to == RankState::kParking || to == RankState::kEndingStart || to == RankState::kEndingRest;
  return begins ? std::optional(FaultPoint::kCoordinatorOperationDurable) : std::nullopt;
}

}  // namespace

std::vector<const Job*> JobRunner::ranks_with(const Job& job) const {
  const std::vector<Job*> ranks = jobs_.ranks_of(job.whole());
  return {ranks.begin(), ranks.end()};
}

// Stores facts about these ranks that the store has refused. Returns an error if it refuses them again. An
// order that changes nothing may depend on such a fact.
Result<void> JobRunner::check_stored(const std::vector<const Job*>& ranks) {
  const bool refused =
      std::ranges::any_of(ranks, [this](const Job* rank) { return jobs_.is_refused(rank->id); });
  return refused ? jobs_.store_unsaved() : ok();
}

Result<lifecycle::Step> JobRunner::make(const std::vector<const Job*>& ranks,
                                        std::span<const lifecycle::RankEvent> events, Kind kind) {
  const std::int64_t now_ms = wall_clock_ms();
  CKPT_TRY(step, lifecycle::step(ranks, events, view_, now_ms));
  if (step.changed.empty() && kind == Kind::kOrder) {
    CKPT_TRYV(check_stored(ranks));
  }
  if (step.changed.empty()) return std::move(step);
  auto stored = jobs_.replace_all(step.changed);
  if (stored) return std::move(step);
  if (kind == Kind::kOrder) return std::move(stored).error();
  CKPT_TRY(fact, lifecycle::step(ranks, events, view_, now_ms, lifecycle::Rules::kLater));
  jobs_.accept(fact.changed, stored.error());
  return std::move(fact);
}

Result<std::vector<JobId>> JobRunner::run(JobId id, std::vector<Event> events, Kind kind) {
  const Job* job = jobs_.find(id);
  if (job == nullptr) return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
  const std::vector<const Job*> ranks = ranks_with(*job);
  std::vector<lifecycle::RankEvent> ranked;
  for (Event& one : events) {
    const auto at = std::ranges::find_if(ranks, [&](const Job* rank) { return rank->id == one.job; });
    if (at == ranks.end()) return Error(ErrorCode::kNotFound, "Job " + job_text(one.job) + " was removed");
    ranked.push_back({static_cast<std::size_t>(at - ranks.begin()), std::move(one.event)});
  }
  std::map<JobId, RankState> before;
  for (const Job* rank : ranks) before.emplace(rank->id, state_of(*rank));
  CKPT_TRY(step, make(ranks, ranked, kind));
  std::vector<JobId> changed;
  changed.reserve(step.changed.size());
  for (const Job& rank : step.changed) changed.push_back(rank.id);
  for (const Job& rank : step.changed)
    if (const auto point = fault_behind(before.at(rank.id), state_of(rank))) fault_point(*point);
  perform(step.actions);
  for (const JobId one : changed) stepped_.notify(one);
  return changed;
}

void JobRunner::perform(const std::vector<std::pair<JobId, lifecycle::JobAction>>& actions) {
  for (const auto& [id, action] : actions) {
    if (const auto* entry = std::get_if<lifecycle::LogEntry>(&action))
      events_.add(entry->kind, entry->text, entry->node, id);
    else if (const auto* warning = std::get_if<lifecycle::Warning>(&action))
      warn(id, warning->text);
    else
      acted_.notify(id, action);
  }
}

// Logs a warning only when its text changes, because a waiting rule is retried each second.
void JobRunner::warn(JobId id, const std::string& text) {
  if (std::exchange(warned_[id], text) != text) spdlog::warn("{}", text);
}

Result<void> JobRunner::order(JobId id, lifecycle::JobEvent event) {
  std::vector<Event> events(1);
  events.front() = {id, std::move(event)};
  return order_all(std::move(events));
}

Result<void> JobRunner::order_all(std::vector<Event> events) {
  const JobId first = events.front().job;
  CKPT_TRYV(run(first, std::move(events), Kind::kOrder));
  return ok();
}

void JobRunner::fact(JobId id, lifecycle::JobEvent event) {
  std::vector<Event> events(1);
  events.front() = {id, std::move(event)};
  if (auto done = run(id, std::move(events), Kind::kFact); !done)
    spdlog::error("an event of {} was ignored: {}", job_text(id), done.error().to_string());
}

// Applies the rules among the ranks of the job. An error is logged.
void JobRunner::settle(JobId id) {
  if (auto done = run(id, {}, Kind::kOrder); !done)
    spdlog::error("the rules for the ranks of {} were not applied: {}", job_text(id),
                  done.error().to_string());
}

std::vector<JobId> JobRunner::on_inventory(const Node& node) {
  std::vector<JobId> missing_starts;
  for (const wire::JobInstance& instance : node.instances) on_instance(node, instance);
  for (const Job& job : jobs_.live()) {
    const Segment& own = job.segments.back();
    if (!holds_gpu(job.state) || own.node != node.row.name || node.find(job.id, own.incarnation) != nullptr)
      continue;
    const JobId id = job.id;
    fact(id, lifecycle::Missing{});
    if (state_of(*jobs_.find(id)) == RankState::kStarting) missing_starts.push_back(id);
  }
  jobs_.changed().notify();  // every inventory notifies, because it also reports the free memory of the GPUs
  return missing_starts;
}

// Processes a report on an instance. A report about an unknown job is ignored: the job was removed, or
// recovery.h takes it in.
void JobRunner::on_instance(const Node& node, const wire::JobInstance& instance) {
  Job* job = jobs_.find(instance.job);
  if (job == nullptr || !holds_gpu(job->state)) return;
  const Segment& own = job->segments.back();
  if (own.node == node.row.name && own.incarnation == instance.incarnation) admit_instance(*job, instance);
}

void JobRunner::reevaluate(JobId id, const Node* node) {
  const Job* job = jobs_.find(id);
  if (job == nullptr || node == nullptr) return;
  if (const wire::JobInstance* own = node->find(id, job->segments.back().incarnation))
    on_instance(*node, *own);
}

void JobRunner::admit_instance(Job& job, const wire::JobInstance& instance) {
  const wire::JobPhase before = job.phase;
  const JobId id = job.id;
  if (lifecycle::take_report(job, instance, wall_clock_ms())) jobs_.memory_changed(id);
  // The report of an instance that continues to run is not an event. Most reports are of this kind.
  if (before == job.phase && job.state == JobState::kRunning && job.phase != wire::JobPhase::kExited)
    return jobs_.changed().notify();
  const auto stepped = run(id, {Event{id, lifecycle::report_of(instance)}}, Kind::kFact);
  if (!stepped) spdlog::error("a report about {} was ignored: {}", job_text(id), stepped.error().to_string());
  Job* now = jobs_.find(id);
  if (now == nullptr || (stepped && std::ranges::find(*stepped, id) != stepped->end())) return;
  if (before != now->phase)
    jobs_.save(*now);
  else
    jobs_.changed().notify();
}

Result<void> JobRunner::forget(const std::vector<Job*>& ranks) {
  std::vector<JobId> ids;
  std::vector<std::pair<std::string, std::string>> entries;
  for (const Job* rank : ranks) {
    CKPT_TRYV(lifecycle::check_removable(*rank, view_));
    ids.push_back(rank->id);
    entries.emplace_back("job " + label(*rank) + " was removed; its images stay", rank->node());
  }
  CKPT_TRYV(jobs_.remove(ids));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    warned_.erase(ids[i]);
    events_.add("job-removed", entries[i].first, entries[i].second, ids[i]);
  }
  return ok();
}

std::vector<JobId> JobRunner::prune(const Retention& retention) {
  std::vector<JobId> removed = jobs_.remove_old(
      retention, [this](const Job& job) { return lifecycle::check_removable(job, view_).has_value(); });
  for (const JobId id : removed) warned_.erase(id);
  return removed;
}

}  // namespace ckpt::coordinator
