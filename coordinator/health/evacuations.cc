// SPDX-License-Identifier: Apache-2.0
// What is decided, stored and looked at; how one job is moved: evacuation_attempts.cc.
#include "coordinator/health/evacuations.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "libckpt/base/clock.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {
namespace {

using wire::HealthOutcome;

constexpr std::chrono::hours kDay{24};
// A fault's victims end while the agent still waits for what belongs together.
constexpr std::int64_t kDeathBeforeFindingMs = 60'000;
constexpr const char* kEvacuationSchema =
    "CREATE TABLE IF NOT EXISTS evacuations (id INTEGER PRIMARY KEY AUTOINCREMENT, document TEXT NOT NULL)";

EvacuationLimits limits_of(const Config& config) {
  EvacuationLimits limits;
  limits.parallel = static_cast<std::uint32_t>(config.evacuation_parallel);
  limits.breaker_count = static_cast<std::uint32_t>(config.evacuation_breaker_count);
  limits.breaker_window_ms = config.evacuation_breaker_window_ms;
  limits.attempts_per_job = static_cast<std::uint32_t>(config.evacuation_attempts_per_job);
  return limits;
}

bool is_on(const Place& place, const Job& job) {
  return std::any_of(job.ranks.begin(), job.ranks.end(),
                     [&](const JobRank& rank) { return rank.place == place; });
}

}  // namespace

Evacuations::Evacuations(Parts parts)
    : parts_(std::move(parts)), limits_(limits_of(parts_.config)), wake_(parts_.executor) {
  const auto news = [this] {
    ++generation_;
    wake();
  };
  parts_.cordons.changed().subscribe(news);
  parts_.policy.changed().subscribe(news);
  parts_.health.changed().subscribe([this] { wake(); });
  parts_.jobs.changed().subscribe([this] { wake(); });
  parts_.migrations.changed().subscribe([this] { wake(); });
}

Result<void> Evacuations::load() {
  CKPT_TRYV(parts_.store.database().execute(kEvacuationSchema));
  CKPT_TRY(statement, parts_.store.database().prepare("SELECT id, document FROM evacuations ORDER BY id"));
  while (true) {
    CKPT_TRY(row, statement.next());
    if (!row) return ok();
    const auto id = static_cast<EvacuationId>(statement.integer(0));
    try {
      Evacuation evacuation = evacuation_from_document(statement.text(1));
      evacuation.id = id;
      if (evacuation.open()) open_.insert(id);
      evacuations_.emplace(id, std::move(evacuation));
    } catch (const std::exception& e) {
      return Error(ErrorCode::kCorrupt,
                   "Row " + std::to_string(id) + " of table evacuations does not decode: " + e.what());
    }
  }
}

// A restore that the coordinator had asked for when it ended may have come about or not: where the job is
// says which.
void Evacuations::start() {
  for (auto& [id, e] : evacuations_) {
    if (e.state != EvacuationState::kRestoring && e.state != EvacuationState::kParking) continue;
    const Job* job = parts_.jobs.find(e.job);
    const bool elsewhere = job != nullptr && !is_ended(job->state) && !is_on(e.from, *job);
    if (e.state == EvacuationState::kRestoring && elsewhere) {
      e.to = job->ranks.front().place;
      enter(e, EvacuationState::kRestored,
            "restored from its newest image before the coordinator was started again");
    } else {
      enter(e, EvacuationState::kQueued, "the coordinator was started again");
    }
  }
  control::spawn(parts_.executor, "evacuations", run());
}

void Evacuations::on_inventory() {
  ++generation_;
  wake();
}

std::uint32_t Evacuations::recent() const {
  return recent_starts(pointers(), wall_clock_ms(), parts_.policy.breaker().forgiven_ms, limits_);
}

control::Task<> Evacuations::run() {
  while (true) {
    const std::uint64_t wakes = wakes_;
    step();
    if (wakes == wakes_) co_await wake_.wait_until(std::chrono::steady_clock::now() + kDay);
  }
}

void Evacuations::step() {
  for (const Finding& finding : parts_.health.fresh()) begin_evacuations(finding);
  const std::set<EvacuationId> open = open_;
  for (const EvacuationId id : open) reconcile(evacuations_.at(id));
  start_next();
}

void Evacuations::begin_evacuations(const Finding& finding) {
  if (parts_.policy.is_paused(finding.node)) {
    if (auto kept = keep(finding, {}); !kept)
      spdlog::error("a finding of {} was not marked: {}", finding.node, kept.assume_error().to_string());
    return;
  }
  if (finding.said.cordon) {
    auto set =
        parts_.cordons.set(Scope(finding.node, finding.said.gpu), CordonOwner::kHealth, finding.said.reason);
    // Not stored, so not acted on: the next news tries again.
    if (!set)
      return spdlog::error("{} was not cordoned: {}", to_text(finding.place()),
                           set.assume_error().to_string());
  }
  if (auto kept = keep(finding, concerned(finding)); !kept)
    spdlog::error("what follows from a finding of {} was not stored: {}", finding.node,
                  kept.assume_error().to_string());
}

std::vector<Evacuation> Evacuations::concerned(const Finding& finding) const {
  std::vector<Evacuation> found;
  for (const auto& [id, job] : parts_.jobs.all()) {  // the ended ones, too: what died of it
    if (job.state == JobState::kParked || !is_on(finding.place(), job)) continue;
    const auto verdict = std::find_if(finding.said.jobs.begin(), finding.said.jobs.end(),
                                      [&](const wire::JobVerdict& v) { return v.job == id; });
    const bool named = verdict != finding.said.jobs.end();
    const HealthOutcome outcome = named ? verdict->outcome : finding.said.outcome;
    const bool died = is_ended(job.state);
    if (outcome == HealthOutcome::kNone || outcome == HealthOutcome::kInvalid) continue;
    if (died && !(named && outcome == HealthOutcome::kRestore && died_of(job, finding))) continue;
    Evacuation& e = found.emplace_back();
    e.job = id;
    e.job_name = job.spec.name;
    e.from = finding.place();
    e.outcome = outcome;
    e.urgent = finding.said.urgent;
    e.leave_node = finding.said.leave_node;
    e.revive = outcome == HealthOutcome::kRestore && named;
    e.reason = named && !verdict->reason.empty() ? verdict->reason : finding.said.reason;
    e.created_ms = wall_clock_ms();
  }
  return found;
}

// It ended by itself, badly, about when its GPU failed.
bool Evacuations::died_of(const Job& job, const Finding& finding) const {
  return !job.stop_requested && job.exit_code != 0 &&
         job.ended_ms >= finding.said.time_ms - kDeathBeforeFindingMs;
}

Result<void> Evacuations::keep(const Finding& finding, std::vector<Evacuation> decided) {
  CKPT_TRY(transaction, Transaction::begin(parts_.store.database()));
  for (Evacuation& e : decided) {
    const auto known = std::find_if(open_.begin(), open_.end(), [&](EvacuationId id) {
      const Evacuation& other = evacuations_.at(id);
      return other.job == e.job && other.from == e.from;
    });
    if (known != open_.end()) {
      Evacuation graver = evacuations_.at(*known);
      escalate(graver, e);
      e = std::move(graver);
      CKPT_TRY(update, parts_.store.database().prepare("UPDATE evacuations SET document = ?2 WHERE id = ?1"));
      CKPT_TRYV(update.bind(1, static_cast<std::int64_t>(e.id)).bind(2, evacuation_document(e)).run());
    } else {
      CKPT_TRY(insert, parts_.store.database().prepare("INSERT INTO evacuations VALUES (?1, ?2)"));
      CKPT_TRY(
          id, parts_.store.next_id_of("evacuation", evacuations_.empty() ? 0 : evacuations_.rbegin()->first));
      e.id = id;
      CKPT_TRYV(insert.bind(1, static_cast<std::int64_t>(id)).bind(2, evacuation_document(e)).run());
    }
  }
  CKPT_TRYV(parts_.health.store_acted(finding));
  CKPT_TRYV(transaction.commit());
  parts_.health.acted(finding.row);
  for (Evacuation& e : decided) {
    open_.insert(e.id);
    evacuations_[e.id] = std::move(e);
  }
  return ok();
}

void Evacuations::reconcile(Evacuation& evacuation) {
  if (evacuation.state != EvacuationState::kMoving) return;
  const Migration* migration = parts_.migrations.find(evacuation.migration);
  if (migration == nullptr) return enter(evacuation, EvacuationState::kQueued, "its migration is not known");
  if (!migration->open()) after_live(evacuation, *migration);
}

void Evacuations::start_next() {
  std::vector<const Evacuation*> open;
  std::set<EvacuationId> waiting;
  for (const EvacuationId id : open_) {
    open.push_back(&evacuations_.at(id));
    if (const auto tried = tried_at_.find(id); tried != tried_at_.end() && tried->second == generation_)
      waiting.insert(id);
  }
  for (const EvacuationId id : next_evacuations(open, waiting, limits_)) {
    tried_at_[id] = generation_;
    attempt(evacuations_.at(id));
  }
}

std::vector<const Evacuation*> Evacuations::pointers() const {
  std::vector<const Evacuation*> all;
  for (const auto& [id, e] : evacuations_) all.push_back(&e);
  return all;
}

// Said once; that the reason's numbers change meanwhile is no news.
void Evacuations::wait(Evacuation& e, const std::string& note) {
  const bool first = e.note.empty();
  if (e.note == note) return;
  e.note = note;
  if (first) return enter(e, EvacuationState::kQueued, note);
  save(e);
}

void Evacuations::enter(Evacuation& e, EvacuationState state, const std::string& note) {
  e.state = state;
  e.note = note;
  if (!e.open()) {
    e.ended_ms = wall_clock_ms();
    tried_at_.erase(e.id);
    open_.erase(e.id);
  }
  save(e);
  std::string text = fmt::format("[gpumigrate] evacuation {}: {} ({}) at {} is {}", evacuation_text(e.id),
                                 e.job_name, job_text(e.job), to_text(e.from), to_string(state));
  if (e.to) text += ", to " + to_text(*e.to);
  if (!note.empty()) text += ": " + note;
  parts_.events.add("evacuation", text + " (" + e.reason + ")", e.from.node, e.job, e.migration);
  wake();
}

void Evacuations::save(const Evacuation& e) {
  auto statement = parts_.store.database().prepare("UPDATE evacuations SET document = ?2 WHERE id = ?1");
  auto stored = statement ? statement.assume_value()
                                .bind(1, static_cast<std::int64_t>(e.id))
                                .bind(2, evacuation_document(e))
                                .run()
                          : Result<void>(statement.assume_error());
  if (!stored)
    spdlog::error("evacuation {} was not stored: {}", evacuation_text(e.id),
                  stored.assume_error().to_string());
}

void Evacuations::forget_old(const Retention& keep) {
  const std::size_t ended = evacuations_.size() - open_.size();
  std::size_t surplus = ended - std::min(ended, keep.count);
  std::vector<EvacuationId> over;
  for (const auto& [id, e] : evacuations_) {
    if (over.size() >= Retention::kBatch) break;
    if (e.open()) continue;
    if (surplus == 0 && e.ended_ms >= keep.since_ms) break;
    if (surplus > 0) --surplus;
    if (e.ended_ms <= keep.fresh_ms) over.push_back(id);
  }
  if (over.empty()) return;
  if (auto removed = remove(over); !removed)
    return spdlog::error("{} evacuations were not removed: {}", over.size(),
                         removed.assume_error().to_string());
  for (const EvacuationId id : over) evacuations_.erase(id);
}

Result<void> Evacuations::remove(const std::vector<EvacuationId>& ids) {
  CKPT_TRY(transaction, Transaction::begin(parts_.store.database()));
  for (const EvacuationId id : ids) {
    CKPT_TRY(statement, parts_.store.database().prepare("DELETE FROM evacuations WHERE id = ?1"));
    CKPT_TRYV(statement.bind(1, static_cast<std::int64_t>(id)).run());
  }
  return transaction.commit();
}

void Evacuations::wake() {
  ++wakes_;
  wake_.notify();
}

}  // namespace ckpt::coordinator
