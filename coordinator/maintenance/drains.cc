// SPDX-License-Identifier: Apache-2.0
#include "coordinator/maintenance/drains.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>

#include "libckpt/base/clock.h"
#include "libckpt/net/control/at_once.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {
namespace {

constexpr std::chrono::hours kLong{24};
// The time after which a dry run queries no more nodes. Callers of the API wait 90 s.
constexpr std::chrono::seconds kDryRunTimeout{40};

void block(Drains::Prospect& prospect, std::string reason) {
  prospect.job.to.reset();
  prospect.pause.reset();
  prospect.job.state = DrainJobState::kBlocked;
  prospect.job.reason = std::move(reason);
}

}  // namespace

Drains::Drains(Dependencies deps)
    : deps_(std::move(deps)),
      moves_({deps_.jobs, deps_.migrations, deps_.moves, deps_.table, deps_.executor}),
      wake_(deps_.executor) {
  const auto on_change = [this] {
    moves_.on_news();
    wake();
  };
  deps_.jobs.changed().subscribe(on_change);
  deps_.cordons.changed().subscribe(on_change);
  deps_.migrations.changed().subscribe([this] { wake(); });
}

void Drains::wake() {
  ++wakes_;
  wake_.notify();
}

void Drains::resume() {
  for (auto& [id, drain] : deps_.table.all()) {
    if (!drain.open()) continue;
    for (const DrainJob& entry : drain.jobs) {
      if (entry.state != DrainJobState::kRestoring) continue;
      control::spawn(deps_.executor, "restoring " + job_text(entry.job), restore(id, entry.job));
    }
    control::spawn(deps_.executor, "drain " + drain_text(id), run(id));
  }
  control::spawn(deps_.executor, "check for nodes that stay unreachable", expect_nodes());
}

// Waits until nodes from before the restart are no longer expected. Then jobs that wait for such nodes are
// checked again.
control::Task<> Drains::expect_nodes() {
  control::asio::steady_timer timer(deps_.executor, Planner::kReturnTime);
  co_await timer.async_wait(control::kTuple);
  on_inventory();
}

void Drains::on_inventory() {
  moves_.on_inventory();
  wake();
}

Result<Drains::Begun> Drains::begin(const DrainRequest& request) {
  CKPT_TRYV(check_known(request.scope, deps_.nodes));
  Begun begun;
  if (const Drain* running = deps_.table.open_of(request.scope)) {
    begun.id = running->id;
    begun.joined = true;
    return begun;
  }
  const bool cordoned = deps_.cordons.find(request.scope, CordonOwner::kOperator) != nullptr;
  const std::string reason = request.reason.empty() && !cordoned ? "drain" : request.reason;
  CKPT_TRYV(deps_.cordons.set(request.scope, CordonOwner::kOperator, reason));
  Drain drain;
  drain.scope = request.scope;
  drain.parallel = request.parallel;
  drain.fallback = request.fallback;
  drain.reason = request.reason;
  drain.started_ms = wall_clock_ms();
  drain.deadline_ms = drain.started_ms + request.deadline_ms;
  CKPT_TRY(id, deps_.table.add(std::move(drain)));
  begun.id = id;
  const Drain& added = *deps_.table.find(id);
  deps_.events.add("drain-begun",
                   fmt::format("drain {} has begun: at most {} jobs at a time{}", drain_label(added),
                               added.parallel, added.reason.empty() ? "" : ": " + added.reason),
                   added.scope.node);
  if (step(begun.id)) control::spawn(deps_.executor, "drain " + drain_text(begun.id), run(begun.id));
  return begun;
}

Result<void> Drains::cancel(DrainId id, const std::string& reason) {
  Drain* drain = deps_.table.find(id);
  if (drain == nullptr) return Error(ErrorCode::kNotFound, "There is no drain " + drain_text(id));
  if (!drain->open())
    return Error(ErrorCode::kRefused, "Drain " + drain_label(*drain) + " has already ended");
  if (drain->cancelled) return ok();
  drain->cancelled = true;
  drain->cancel_reason = reason;
  CKPT_TRYV(deps_.table.save(*drain));
  on_inventory();
  return ok();
}

void Drains::cancel_of(const Scope& scope, const std::string& reason) {
  const Drain* open = deps_.table.open_of(scope);
  if (open == nullptr) return;
  if (auto cancelled = cancel(open->id, reason); !cancelled)
    spdlog::error("drain {} was not cancelled: {}", drain_text(open->id), cancelled.error().to_string());
}

// Plans a drain without moving anything. Each round queries the nodes of all jobs at once. A refusal may
// change the targets of this job and of other jobs.
control::Task<Result<std::vector<Drains::Prospect>>> Drains::dry_run(DrainRequest request) {
  const auto until = Clock::now() + kDryRunTimeout;
  const auto answers = std::make_shared<Answers>();
  while (true) {
    CKPT_CO_TRY(prospects, prospects_of(request, *answers));
    std::vector<control::Task<>> asks;
    for (Prospect& prospect : prospects) {
      std::vector<Place> targets = unasked(request, prospect, (*answers)[prospect.job.job]);
      if (targets.empty()) continue;
      if (Clock::now() >= until) {
        block(prospect, targets.front().node + " was not queried: other nodes took too long to answer");
        continue;
      }
      asks.push_back(ask(answers, prospect.job.job, std::move(targets)));
    }
    if (asks.empty()) co_return std::move(prospects);
    co_await control::at_once(deps_.executor, "check of a drain's job", std::move(asks));
  }
}

std::vector<Place> Drains::unasked(const DrainRequest& request, const Prospect& prospect,
                                   const NodeAnswers& answers) const {
  const Job* job = deps_.jobs.find(prospect.job.job);
  if (!prospect.job.to || job == nullptr || !deps_.moves.queries_nodes(*job)) return {};
  const Place to = *prospect.job.to;
  if (answers.contains(to.node)) return {};
  std::vector<Place> places = {to};
  PlanHints hints;
  hints.closed.emplace_back(request.scope, "the drain would also empty this place");
  const auto plan = plan_for({job->id}, std::move(hints), answers);
  if (!plan) return places;
  for (Place& place : best_of_nodes(plan->candidates, to.node)) {
    if (places.size() < kMaxAskedTargets && !answers.contains(place.node)) places.push_back(std::move(place));
  }
  return places;
}

control::Task<> Drains::ask(std::shared_ptr<Answers> answers, JobId job, std::vector<Place> targets) {
  const auto asked = co_await deps_.moves.ask(job, targets);
  NodeAnswers& known = (*answers)[job];
  if (!asked) {
    for (const Place& place : targets) known[place.node] = asked.error().to_string();
    co_return;
  }
  for (const TargetAnswer& answer : *asked)
    known[answer.place.node] = answer.acceptance ? std::string() : answer.acceptance.error().to_string();
}

// Plans a move without the nodes that refused in `answers`, as a drain plans again after refusals.
Result<JobMovePlan> Drains::plan_for(const std::vector<JobId>& ranks, PlanHints hints,
                                     const NodeAnswers& answers) const {
  std::vector<std::string> refusals;
  for (const auto& [node, refusal] : answers) {
    if (refusal.empty()) continue;
    hints.closed.emplace_back(Scope(node, std::nullopt), "a move there would be refused");
    if (std::find(refusals.begin(), refusals.end(), refusal) == refusals.end()) refusals.push_back(refusal);
  }
  auto plan = deps_.moves.plan(ranks, hints);
  if (!plan || plan->is_possible() || refusals.empty()) return plan;
  return as_refused(*std::move(plan), fmt::format("{}", fmt::join(refusals, "; ")));
}

void Drains::plan_together(const DrainRequest& request, const std::vector<Prospect*>& ranks,
                           const NodeAnswers& answers, PlanHints& hints) const {
  std::vector<JobId> ids;
  for (const Prospect* rank : ranks) ids.push_back(rank->job.job);
  const auto plan = plan_for(ids, hints, answers);
  const auto drained = [&](const Place& place) {
    return request.scope.covers(place) || deps_.table.is_drained(place);
  };
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    Prospect& prospect = *ranks[i];
    if (!plan) {
      block(prospect, plan.error().to_string());
      continue;
    }
    const Job& job = *deps_.jobs.find(prospect.job.job);
    explain(*plan, prospect.job, drained);
    prospect.passing = plan->passing;
    prospect.job.state = plan->is_possible() ? DrainJobState::kWaiting : DrainJobState::kBlocked;
    if (!plan->is_possible()) continue;
    const Place& to = plan->places[i];
    prospect.job.to = to;
    prospect.pause = deps_.moves.pause_of(job, to);
    hints.promised.emplace_back(to, std::max(prospect.job.state_bytes, job.spec.gpu_memory_bytes));
  }
}

Result<Drains::Prospects> Drains::prospects_of(const DrainRequest& request, const Answers& answers) const {
  CKPT_TRYV(check_known(request.scope, deps_.nodes));
  Prospects prospects;
  for (const Job& job : deps_.jobs.live()) {
    if (is_ended(job.state) || !is_within(request.scope, job)) continue;
    Prospect& prospect = prospects.emplace_back();
    prospect.job = drain_job_of(job);
    prospect.warning = deps_.states.warning_of(job);
  }
  std::sort(prospects.begin(), prospects.end(),
            [](const Prospect& a, const Prospect& b) { return goes_before(a.job, b.job); });
  using Group = std::vector<Prospect*>;
  std::vector<std::pair<JobId, Group>> groups;
  for (Prospect& prospect : prospects) {
    const JobId whole = deps_.jobs.find(prospect.job.job)->whole();
    const auto known =
        std::find_if(groups.begin(), groups.end(), [whole](const auto& at) { return at.first == whole; });
    auto& ranks = known != groups.end() ? known->second : groups.emplace_back(whole, Group()).second;
    ranks.push_back(&prospect);
  }
  // The groups are planned in the order in which a drain tries them (ready_groups()).
  std::stable_sort(groups.begin(), groups.end(),
                   [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  PlanHints hints;
  hints.closed.emplace_back(request.scope, "the drain would also empty this place");
  for (const auto& [whole, ranks] : groups) {
    const auto known = answers.find(ranks.front()->job.job);
    plan_together(request, ranks, known == answers.end() ? NodeAnswers() : known->second, hints);
  }
  for (Prospect& prospect : prospects) {
    const std::string reason = deps_.jobs.find(prospect.job.job)->why_not_by_itself();
    if (!reason.empty()) block(prospect, reason);
  }
  return prospects;
}

control::Task<> Drains::run(DrainId id) {
  while (true) {
    const std::uint64_t wakes = wakes_;
    const auto again = step(id);
    if (!again) co_return;
    if (wakes == wakes_) co_await wake_.wait_until(*again);
  }
}

std::optional<Drains::Clock::time_point> Drains::step(DrainId id) {
  Drain& drain = *deps_.table.find(id);
  const std::vector<DrainJob> before = drain.jobs;
  const std::int64_t now = wall_clock_ms();
  const std::int64_t left_ms = drain.deadline_ms - now;
  const DrainProgress progress = reconcile(drain, moves_.view(), now);
  moves_.note_failures(id, progress.failed);
  if (!drain.cancelled) {
    if (left_ms > 0) moves_.start(drain);
    for (const JobId job :
         begin_restores(drain, moves_.view(), moves_.leaving(drain.scope.node), left_ms <= 0))
      control::spawn(deps_.executor, "restoring " + job_text(job), restore(id, job));
  }
  drain.result = result_of(drain, progress.coming, left_ms <= 0);
  if (!drain.open()) drain.ended_ms = wall_clock_ms();
  if (before != drain.jobs || !drain.open()) save(drain);
  for (const DrainJob& entry : drain.jobs) {
    const auto was = std::find_if(before.begin(), before.end(),
                                  [&](const DrainJob& other) { return other.job == entry.job; });
    if (was == before.end() || was->state != entry.state) report(drain, entry);
  }
  if (drain.open()) {
    if (left_ms <= 0) return Clock::now() + kLong;
    return Clock::now() + std::chrono::milliseconds(left_ms);
  }
  moves_.forget(id);
  deps_.events.add("drain-ended",
                   fmt::format("drain {} has ended: {}", drain_label(drain), to_string(drain.result)),
                   drain.scope.node);
  return std::nullopt;
}

control::Task<> Drains::restore(DrainId id, JobId job) {
  const Job* now = deps_.jobs.find(job);
  const bool away = now != nullptr && !is_ended(now->state) && !is_within(deps_.table.find(id)->scope, *now);
  Result<Restored> restored = Restored();
  if (!away) restored = co_await deps_.images.restore(job, std::nullopt, drain_reason(*deps_.table.find(id)));
  Drain& drain = *deps_.table.find(id);
  DrainJob* entry = drain.find(job);
  if (entry == nullptr || entry->state != DrainJobState::kRestoring) co_return;
  if (away) {
    entry->state = DrainJobState::kRestored;  // the restore happened before the coordinator was restarted
    entry->to = now->place();
    entry->reason = "restored from its newest image";
  } else if (restored) {
    const Restored& there = *restored;
    entry->state = DrainJobState::kRestored;
    entry->to = there.place;
    entry->reason = fmt::format("restored from version {}, {:.1f} s of work are lost", there.image.version,
                                static_cast<double>(there.lost_ms) / 1000);
  } else {
    entry->state = DrainJobState::kFailed;
    entry->reason += "; not restored: " + restored.error().to_string();
  }
  report(drain, *entry);
  save(drain);
  wake();
}

void Drains::report(const Drain& drain, const DrainJob& entry) {
  std::string text = fmt::format("drain {}: {} ({}) is {}", drain_label(drain), entry.name,
                                 job_text(entry.job), to_string(entry.state));
  if (entry.to) text += ", " + to_text(entry.from) + " to " + to_text(*entry.to);
  if (!entry.reason.empty()) text += ": " + entry.reason;
  deps_.events.add("drain-job", std::move(text), drain.scope.node, entry.job, entry.migration);
}

void Drains::save(Drain& drain) {
  if (auto saved = deps_.table.save(drain); !saved)
    spdlog::error("drain {} was not stored: {}", drain_label(drain), saved.error().to_string());
}

}  // namespace ckpt::coordinator
