// SPDX-License-Identifier: Apache-2.0
#include "coordinator/maintenance/drains.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "libckpt/base/clock.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {
namespace {

constexpr std::int64_t kShortestMoveMs = 1'000;
constexpr std::int64_t kLongestMoveMs = 600'000;
constexpr std::chrono::hours kLong{24};
constexpr const char* kDrainSchema =
    "CREATE TABLE IF NOT EXISTS drains (id INTEGER PRIMARY KEY AUTOINCREMENT, document TEXT NOT NULL)";

bool is_on(const Scope& scope, const Job& job) {
  return holds_gpu(job.state) && std::any_of(job.ranks.begin(), job.ranks.end(),
                                             [&](const JobRank& rank) { return scope.covers(rank.place); });
}

std::string label(const Drain& drain) {
  return drain_text(drain.id) + " of " + to_text(drain.scope);
}

std::string why_of(const Drain& drain) {
  return "[gpumigrate] drain " + drain_text(drain.id) + (drain.reason.empty() ? "" : ": " + drain.reason);
}

std::string ended_text(const Job& job) {
  if (job.state == JobState::kExited && job.exit_code >= 0)
    return "it ended with exit code " + std::to_string(job.exit_code);
  return job.reason.empty() ? "it ended" : "it ended: " + job.reason;
}

DrainJob entry_of(const Job& job) {
  DrainJob entry;
  entry.job = job.id;
  entry.name = job.spec.name;
  entry.priority = job.spec.priority;
  entry.state_bytes = job.state_bytes();
  entry.from = job.ranks.front().place;
  return entry;
}

}  // namespace

DrainTable::DrainTable(Parts parts)
    : parts_(std::move(parts)), wake_(parts_.executor), changed_(parts_.executor) {
  const auto news = [this] {
    ++generation_;
    ++wakes_;
    wake_.notify();
  };
  parts_.jobs.changed().subscribe(news);
  parts_.cordons.changed().subscribe(news);
  parts_.migrations.changed().subscribe([this] {
    ++wakes_;
    wake_.notify();
  });
}

Result<void> DrainTable::load() {
  CKPT_TRYV(parts_.store.database().execute(kDrainSchema));
  CKPT_TRY(statement, parts_.store.database().prepare("SELECT id, document FROM drains ORDER BY id"));
  while (true) {
    CKPT_TRY(row, statement.next());
    if (!row) return ok();
    const auto id = static_cast<DrainId>(statement.integer(0));
    try {
      Drain drain = drain_from_document(statement.text(1));
      drain.id = id;
      drains_.emplace(id, std::move(drain));
    } catch (const std::exception& e) {
      return Error(ErrorCode::kCorrupt,
                   "Row " + std::to_string(id) + " of table drains does not decode: " + e.what());
    }
  }
}

void DrainTable::resume() {
  for (auto& [id, drain] : drains_) {
    if (!drain.open()) continue;
    for (const DrainJob& entry : drain.jobs) {
      if (entry.state != DrainJobState::kRestoring) continue;
      control::spawn(parts_.executor, "restoring " + job_text(entry.job), restore(id, entry.job));
    }
    control::spawn(parts_.executor, "drain " + drain_text(id), run(id));
  }
  control::spawn(parts_.executor, "nodes that stay away", expect_nodes());
}

// What waits for nodes that were there before the restart looks again once they are not expected any more.
control::Task<> DrainTable::expect_nodes() {
  control::asio::steady_timer timer(parts_.executor, Service::kReturnTime);
  co_await timer.async_wait(control::kTuple);
  on_inventory();
}

void DrainTable::on_inventory() {
  ++inventories_;
  ++generation_;
  ++wakes_;
  wake_.notify();
}

Result<DrainTable::Begun> DrainTable::begin(const DrainRequest& request) {
  CKPT_TRYV(check_known(request.scope, parts_.nodes));
  if (request.fallback == Fallback::kRestore && images_ == nullptr)
    return Error(ErrorCode::kNotSupported, "This coordinator keeps no images to restore from");
  Begun begun;
  if (const Drain* running = open_of(request.scope)) {
    begun.id = running->id;
    begun.joined = true;
    return begun;
  }
  const bool cordoned = parts_.cordons.find(request.scope, CordonOwner::kOperator) != nullptr;
  const std::string why = request.reason.empty() && !cordoned ? "drain" : request.reason;
  CKPT_TRYV(parts_.cordons.set(request.scope, CordonOwner::kOperator, why));
  CKPT_TRY(statement, parts_.store.database().prepare("INSERT INTO drains VALUES (?1, ?2)"));
  Drain drain;
  CKPT_TRY(id, parts_.store.next_id_of("drain", drains_.empty() ? 0 : drains_.rbegin()->first));
  drain.id = begun.id = id;
  drain.scope = request.scope;
  drain.parallel = request.parallel;
  drain.fallback = request.fallback;
  drain.reason = request.reason;
  drain.started_ms = wall_clock_ms();
  drain.deadline_ms = drain.started_ms + request.deadline_ms;
  CKPT_TRYV(statement.bind(1, static_cast<std::int64_t>(id)).bind(2, drain_document(drain)).run());
  parts_.events.add("drain-begun",
                    fmt::format("drain {}, {} at a time{}", label(drain), drain.parallel,
                                drain.reason.empty() ? "" : ": " + drain.reason),
                    drain.scope.node);
  drains_.emplace(begun.id, std::move(drain));
  if (step(begun.id)) control::spawn(parts_.executor, "drain " + drain_text(begun.id), run(begun.id));
  return begun;
}

Result<void> DrainTable::cancel(DrainId id, const std::string& why) {
  const auto at = drains_.find(id);
  if (at == drains_.end()) return Error(ErrorCode::kNotFound, "There is no drain " + drain_text(id));
  if (!at->second.open())
    return Error(ErrorCode::kRefused, "Drain " + label(at->second) + " is over already");
  if (at->second.cancelled) return ok();
  at->second.cancelled = true;
  at->second.cancel_reason = why;
  CKPT_TRYV(save(at->second));
  on_inventory();
  return ok();
}

void DrainTable::cancel_of(const Scope& scope, const std::string& why) {
  const Drain* open = open_of(scope);
  if (open == nullptr) return;
  if (auto cancelled = cancel(open->id, why); !cancelled)
    spdlog::error("drain {} was not cancelled: {}", drain_text(open->id),
                  cancelled.assume_error().to_string());
}

Result<std::vector<DrainTable::Prospect>> DrainTable::dry_run(const DrainRequest& request) {
  CKPT_TRYV(check_known(request.scope, parts_.nodes));
  std::vector<DrainJob> entries;
  for (const Job& job : parts_.jobs.live()) {
    if (!is_ended(job.state) && is_on(request.scope, job)) entries.push_back(entry_of(job));
  }
  std::sort(entries.begin(), entries.end(), goes_before);
  PlanHints hints;
  hints.closed.emplace_back(request.scope, "it would be drained");
  std::vector<Prospect> prospects;
  for (const DrainJob& entry : entries) {
    Prospect& prospect = prospects.emplace_back();
    prospect.job = entry;
    const Job& job = *parts_.jobs.find(entry.job);
    CKPT_TRY(plan, parts_.service.plan(job, "auto", hints));
    if (plan.to) prospect.pause = expected_pause(job, parts_.nodes, plan.to->node == job.node());
    prospect.job.to = plan.to;
    prospect.job.reason = plan.reason;
    prospect.job.state = plan.to ? DrainJobState::kWaiting : DrainJobState::kBlocked;
    prospect.passing = plan.passing;
    const std::uint64_t asked = job.spec.gpu_memory_bytes;
    if (plan.to) hints.promised.emplace_back(*plan.to, std::max(entry.state_bytes, asked));
  }
  return prospects;
}

const Drain* DrainTable::find(DrainId id) const {
  const auto at = drains_.find(id);
  return at == drains_.end() ? nullptr : &at->second;
}

const Drain* DrainTable::open_of(const Scope& scope) const {
  const auto at = std::find_if(drains_.begin(), drains_.end(), [&](const auto& entry) {
    return entry.second.open() && entry.second.scope == scope;
  });
  return at == drains_.end() ? nullptr : &at->second;
}

control::Task<> DrainTable::run(DrainId id) {
  while (true) {
    const std::uint64_t wakes = wakes_;
    const auto again = step(id);
    if (!again) co_return;
    if (wakes == wakes_) co_await wake_.wait_until(*again);
  }
}

std::optional<DrainTable::Clock::time_point> DrainTable::step(DrainId id) {
  Drain& drain = drains_.at(id);
  const std::vector<DrainJob> before = drain.jobs;
  const std::int64_t left_ms = drain.deadline_ms - wall_clock_ms();
  const bool coming = reconcile(drain);
  if (!drain.cancelled) {
    if (left_ms > 0) start_moves(drain);
    restore_some(drain, left_ms <= 0);
  }
  drain.result = result_of(drain, coming, left_ms <= 0);
  if (!drain.open()) drain.ended_ms = wall_clock_ms();
  if (before != drain.jobs || !drain.open()) {
    if (auto saved = save(drain); !saved)
      spdlog::error("drain {} was not stored: {}", label(drain), saved.assume_error().to_string());
  }
  for (const DrainJob& entry : drain.jobs) {
    const auto was = std::find_if(before.begin(), before.end(),
                                  [&](const DrainJob& other) { return other.job == entry.job; });
    if (was == before.end() || was->state != entry.state) tell(drain, entry);
  }
  if (drain.open()) {
    if (left_ms <= 0) return Clock::now() + kLong;
    return Clock::now() + std::chrono::milliseconds(left_ms);
  }
  memory_.erase(id);
  parts_.events.add("drain-ended", fmt::format("drain {} is over: {}", label(drain), to_string(drain.result)),
                    drain.scope.node);
  return std::nullopt;
}

bool DrainTable::reconcile(Drain& drain) {
  bool coming = false;
  for (const Job& job : parts_.jobs.live()) {
    if (is_ended(job.state)) continue;
    const bool here = is_on(drain.scope, job);
    if (here && drain.find(job.id) == nullptr) add(drain, job);
    const Migration* open = here ? nullptr : parts_.migrations.open_of(job.id);
    coming = coming || (open != nullptr && drain.scope.covers(open->to));
  }
  for (DrainJob& entry : drain.jobs) {
    const Job* job = parts_.jobs.find(entry.job);
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

void DrainTable::look_at(Drain& drain, DrainJob& entry, const Job& job) {
  if (entry.state == DrainJobState::kRestoring) return;  // restore() says how that ends
  if (!is_on(drain.scope, job)) {
    if (is_gone(entry.state)) return;
    if (job.state == JobState::kParked) {
      entry.state = DrainJobState::kEnded;
      entry.reason = "it is parked";
      return;
    }
    const Migration* last = parts_.migrations.find(entry.migration);
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
  if (const Migration* open = parts_.migrations.open_of(job.id)) {
    entry.state = DrainJobState::kMoving;
    entry.migration = open->id;
    entry.to = open->to;
    entry.reason = migration_text(open->id) + " is " + std::string(to_string(open->phase));
    return;
  }
  if (entry.state != DrainJobState::kMoving) return;
  const Migration* last = parts_.migrations.find(entry.migration);
  if (last != nullptr && last->open()) return;
  if (last == nullptr)
    entry.state = DrainJobState::kWaiting;
  else
    on_migration_ended(drain, entry, *last);
}

// It is over, and the job is still here.
void DrainTable::on_migration_ended(Drain& drain, DrainJob& entry, const Migration& migration) {
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
  Memory& memory = memory_[drain.id];
  memory.retry_after[entry.job] = inventories_;
  memory.failed_at[entry.job] = migration.to;
  if (++entry.attempts >= kMaxDrainAttempts) entry.state = DrainJobState::kFailed;
}

void DrainTable::start_moves(Drain& drain) {
  std::vector<DrainJob*> ready;
  for (DrainJob& entry : drain.jobs) {
    if (entry.state == DrainJobState::kWaiting || entry.state == DrainJobState::kBlocked)
      ready.push_back(&entry);
  }
  std::sort(ready.begin(), ready.end(),
            [](const DrainJob* a, const DrainJob* b) { return goes_before(*a, *b); });
  for (DrainJob* entry : ready) {
    const Job* job = parts_.jobs.find(entry->job);
    if (job == nullptr) continue;
    if (leaving(drain.scope.node) < drain.parallel || !parts_.service.why_not_movable(*job).empty())
      move(drain, *entry, *job);
    else if (entry->state == DrainJobState::kWaiting && entry->reason.empty())
      entry->reason = "waits for its turn";
  }
}

void DrainTable::move(Drain& drain, DrainJob& entry, const Job& job) {
  Memory& memory = memory_[drain.id];
  const auto retry = memory.retry_after.find(entry.job);
  if (retry != memory.retry_after.end() && inventories_ <= retry->second) return;
  std::uint64_t& planned_at = memory.planned_at[entry.job];
  if (std::exchange(planned_at, generation_) == generation_) return;
  const auto failed_at = memory.failed_at.find(entry.job);
  PlanHints hints;
  if (failed_at != memory.failed_at.end())
    hints.closed.emplace_back(Scope(failed_at->second.node, failed_at->second.gpu),
                              "the last move there failed");
  auto plan = parts_.service.plan(job, "auto", hints);
  if (plan && !plan.assume_value().to && !hints.closed.empty()) plan = parts_.service.plan(job, "auto");
  if (!plan) {
    entry.state = DrainJobState::kBlocked;
    entry.reason = plan.assume_error().to_string();
  } else if (const MigratePlan& found = plan.assume_value(); !found.to) {
    entry.state = found.passing ? DrainJobState::kWaiting : DrainJobState::kBlocked;
    entry.reason = found.reason;
    parts_.service.give_up_parking(job, found, why_of(drain));
  } else if (!begin_move(drain, entry, job, found)) {
    memory.retry_after[entry.job] = inventories_;
    if (++entry.attempts >= kMaxDrainAttempts) entry.state = DrainJobState::kFailed;
  }
}

bool DrainTable::begin_move(Drain& drain, DrainJob& entry, const Job& job, const MigratePlan& plan) {
  MigrateRequest request;
  request.options.max_downtime_ns = kDefaultMaxDowntimeNs;
  request.timeout_ms = std::clamp(drain.deadline_ms - wall_clock_ms(), kShortestMoveMs, kLongestMoveMs);
  request.why = why_of(drain);
  auto begun = parts_.service.begin(job, request, plan);
  if (!begun) {
    entry.state = DrainJobState::kWaiting;
    entry.reason = begun.assume_error().to_string();
    return false;
  }
  const Migration& migration = *begun.assume_value();
  entry.state = DrainJobState::kMoving;
  entry.migration = migration.id;
  entry.to = migration.to;
  entry.reason = migration_text(migration.id) + " is " + std::string(to_string(migration.phase));
  return true;
}

void DrainTable::restore_some(Drain& drain, bool deadline_passed) {
  if (drain.fallback != Fallback::kRestore) return;
  for (DrainJob& entry : drain.jobs) {
    const bool stuck = entry.state == DrainJobState::kBlocked || entry.state == DrainJobState::kFailed ||
                       (deadline_passed && entry.state == DrainJobState::kWaiting);
    if (!stuck || entry.restore_tried || leaving(drain.scope.node) >= drain.parallel) continue;
    entry.restore_tried = true;
    if (images_ == nullptr) {
      entry.reason += "; there are no images to restore it from";
      continue;
    }
    entry.state = DrainJobState::kRestoring;
    entry.reason = "it could not be moved (" + entry.reason + "): restoring its newest image";
    control::spawn(parts_.executor, "restoring " + job_text(entry.job), restore(drain.id, entry.job));
  }
}

control::Task<> DrainTable::restore(DrainId id, JobId job) {
  const Job* now = parts_.jobs.find(job);
  const bool away = now != nullptr && !is_ended(now->state) && !is_on(drains_.at(id).scope, *now);
  Result<Restored> restored = Error(ErrorCode::kNotSupported, "There are no images to restore from");
  if (!away && images_ != nullptr)
    restored = co_await images_->restore(job, std::nullopt, why_of(drains_.at(id)));
  Drain& drain = drains_.at(id);
  DrainJob* entry = drain.find(job);
  if (entry == nullptr || entry->state != DrainJobState::kRestoring) co_return;
  if (away) {
    entry->state = DrainJobState::kRestored;  // before the coordinator was started again
    entry->to = now->ranks.front().place;
    entry->reason = "restored from its newest image";
  } else if (restored) {
    const Restored& there = restored.assume_value();
    entry->state = DrainJobState::kRestored;
    entry->to = there.place;
    entry->reason = fmt::format("restored from version {}, {:.1f} s of work are lost", there.image.version,
                                static_cast<double>(there.lost_ms) / 1000);
  } else {
    entry->state = DrainJobState::kFailed;
    entry->reason += "; not restored: " + restored.assume_error().to_string();
  }
  tell(drain, *entry);
  if (auto saved = save(drain); !saved)
    spdlog::error("drain {} was not stored: {}", label(drain), saved.assume_error().to_string());
  ++wakes_;
  wake_.notify();
}

unsigned DrainTable::leaving(const std::string& node) const {
  unsigned count = 0;
  for (const Migration& migration : parts_.migrations.open()) count += migration.from.node == node ? 1 : 0;
  for (const auto& [id, drain] : drains_) {
    if (!drain.open() || drain.scope.node != node) continue;
    for (const DrainJob& entry : drain.jobs) count += entry.state == DrainJobState::kRestoring ? 1 : 0;
  }
  return count;
}

void DrainTable::add(Drain& drain, const Job& job) {
  drain.jobs.push_back(entry_of(job));
}

void DrainTable::tell(const Drain& drain, const DrainJob& entry) {
  std::string text = fmt::format("drain {}: {} ({}) is {}", label(drain), entry.name, job_text(entry.job),
                                 to_string(entry.state));
  if (entry.to) text += ", " + to_text(entry.from) + " to " + to_text(*entry.to);
  if (!entry.reason.empty()) text += ": " + entry.reason;
  parts_.events.add("drain-job", std::move(text), drain.scope.node, entry.job, entry.migration);
}

Result<void> DrainTable::save(Drain& drain) {
  ++drain.revision;
  changed_.notify();
  CKPT_TRY(statement, parts_.store.database().prepare("UPDATE drains SET document = ?2 WHERE id = ?1"));
  statement.bind(1, static_cast<std::int64_t>(drain.id)).bind(2, drain_document(drain));
  return statement.run();
}

void DrainTable::forget_old(const Retention& keep) {
  std::size_t surplus = 0;
  for (const auto& [id, drain] : drains_) surplus += drain.open() ? 0 : 1;
  surplus -= std::min(surplus, keep.count);
  std::vector<DrainId> over;
  for (const auto& [id, drain] : drains_) {
    if (over.size() >= Retention::kBatch) break;
    if (drain.open()) continue;
    if (surplus == 0 && drain.ended_ms >= keep.since_ms) break;
    if (surplus > 0) --surplus;
    // What a restore still waits for finds its drain.
    const bool restoring = std::any_of(drain.jobs.begin(), drain.jobs.end(), [](const DrainJob& entry) {
      return entry.state == DrainJobState::kRestoring;
    });
    if (!restoring && drain.ended_ms <= keep.fresh_ms) over.push_back(id);
  }
  if (over.empty()) return;
  if (auto removed = remove(over); !removed)
    return spdlog::error("{} drains were not removed: {}", over.size(), removed.assume_error().to_string());
  for (const DrainId id : over) drains_.erase(id);
}

Result<void> DrainTable::remove(const std::vector<DrainId>& ids) {
  CKPT_TRY(transaction, Transaction::begin(parts_.store.database()));
  for (const DrainId id : ids) {
    CKPT_TRY(statement, parts_.store.database().prepare("DELETE FROM drains WHERE id = ?1"));
    CKPT_TRYV(statement.bind(1, static_cast<std::int64_t>(id)).run());
  }
  return transaction.commit();
}

}  // namespace ckpt::coordinator
