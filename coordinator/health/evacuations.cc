// SPDX-License-Identifier: Apache-2.0
// The decisions and the progress of evacuations. evacuation_attempts.cc moves a single job.
#include "coordinator/health/evacuations.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "libckpt/base/clock.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {
namespace {

constexpr std::chrono::hours kDay{24};

EvacuationLimits limits_of(const Config& config) {
  EvacuationLimits limits;
  limits.parallel = static_cast<std::uint32_t>(config.evacuation_parallel);
  limits.breaker_count = static_cast<std::uint32_t>(config.evacuation_breaker_count);
  limits.breaker_window_ms = config.evacuation_breaker_window_ms;
  limits.attempts_per_job = static_cast<std::uint32_t>(config.evacuation_attempts_per_job);
  return limits;
}

}  // namespace

Evacuations::Evacuations(Dependencies deps)
    : deps_(std::move(deps)), limits_(limits_of(deps_.config)), wake_(deps_.executor) {
  const auto on_change = [this] {
    ++generation_;
    wake();
  };
  deps_.cordons.changed().subscribe(on_change);
  deps_.policy.changed().subscribe(on_change);
  deps_.health.changed().subscribe([this] { wake(); });
  deps_.jobs.changed().subscribe([this] { wake(); });
  deps_.migrations.changed().subscribe([this] { wake(); });
}

void Evacuations::start() {
  for (auto& [id, e] : deps_.table.all()) {
    if (const auto step = after_restart(e, deps_.jobs.find(e.job))) carry_out(e, *step);
  }
  control::spawn(deps_.executor, "evacuations", run());
}

void Evacuations::on_inventory() {
  ++generation_;
  wake();
}

std::uint32_t Evacuations::recent() const {
  return recent_starts(deps_.table.pointers(), wall_clock_ms(), deps_.policy.breaker().forgiven_ms, limits_);
}

control::Task<> Evacuations::run() {
  while (true) {
    const std::uint64_t wakes = wakes_;
    step();
    if (wakes == wakes_) co_await wake_.wait_until(std::chrono::steady_clock::now() + kDay);
  }
}

void Evacuations::step() {
  for (const Finding& finding : deps_.health.fresh()) begin_evacuations(finding);
  take_in_arrivals();
  const std::set<EvacuationId> open = deps_.table.open();
  for (const EvacuationId id : open) reconcile(deps_.table.at(id));
  start_next();
}

void Evacuations::begin_evacuations(const Finding& finding) {
  doubt_images(finding);
  if (deps_.policy.is_paused(finding.node)) {
    if (auto stored = store(finding, {}, true); !stored)
      spdlog::error("a finding about {} was not marked as handled: {}", finding.node,
                    stored.error().to_string());
    return;
  }
  if (finding.reported.cordon) {
    auto set = deps_.cordons.set(Scope(finding.node, finding.reported.gpu), CordonOwner::kHealth,
                                 finding.reported.reason);
    // A decision that was not stored is not carried out. It is repeated at the next change.
    if (!set)
      return spdlog::error("{} was not cordoned: {}", to_text(finding.place()), set.error().to_string());
  }
  if (auto stored = store(finding, concerned(finding)); !stored)
    spdlog::error("the reaction to a finding about {} was not stored: {}", finding.node,
                  stored.error().to_string());
}

std::vector<Evacuation> Evacuations::concerned(const Finding& finding) const {
  std::vector<Evacuation> found;
  for (const auto& [id, job] : deps_.jobs.all()) {  // ended jobs are included, because some ended because of
                                                    // the fault
    if (auto evacuation = evacuation_for(job, finding, wall_clock_ms()))
      found.push_back(*std::move(evacuation));
  }
  return found;
}

Result<void> Evacuations::store(const Finding& finding, std::vector<Evacuation> decided, bool paused) {
  CKPT_TRYV(deps_.table.store(std::move(decided), [&] { return deps_.health.store_acted(finding, paused); }));
  deps_.health.acted(finding.row, paused);
  return ok();
}

void Evacuations::reconcile(Evacuation& evacuation) {
  if (evacuation.state != EvacuationState::kMoving) return;
  const Migration* migration = deps_.migrations.find(evacuation.migration);
  if (migration == nullptr) return enter(evacuation, EvacuationState::kQueued, "its migration is unknown");
  if (!migration->open()) carry_out(evacuation, after_live(evacuation, *migration));
}

void Evacuations::start_next() {
  std::vector<const Evacuation*> open;
  std::set<EvacuationId> waiting;
  for (const EvacuationId id : deps_.table.open()) {
    open.push_back(&deps_.table.at(id));
    if (const auto tried = tried_at_.find(id); tried != tried_at_.end() && tried->second == generation_)
      waiting.insert(id);
  }
  for (const EvacuationId id : next_evacuations(open, waiting, limits_)) {
    tried_at_[id] = generation_;
    attempt(deps_.table.at(id));
  }
}

// Queues the evacuation with a note. The wait is reported once, even if numbers in the note change later.
void Evacuations::wait(Evacuation& e, const std::string& note) {
  const bool first = e.note.empty();
  if (e.note == note) return;
  e.note = note;
  if (first) return enter(e, EvacuationState::kQueued, note);
  deps_.table.save(e);
}

void Evacuations::enter(Evacuation& e, EvacuationState state, const std::string& note) {
  e.state = state;
  e.note = note;
  if (!e.open()) {
    e.ended_ms = wall_clock_ms();
    tried_at_.erase(e.id);
  }
  deps_.table.save(e);
  std::string text = fmt::format("[gpumigrate] evacuation {}: {} ({}) at {} is {}", evacuation_text(e.id),
                                 e.job_name, job_text(e.job), to_text(e.from), to_string(state));
  if (e.to) text += ", to " + to_text(*e.to);
  if (!note.empty()) text += ": " + note;
  deps_.events.add("evacuation", text + " (" + e.reason + ")", e.from.node, e.job, e.migration);
  wake();
}

void Evacuations::wake() {
  ++wakes_;
  wake_.notify();
}

}  // namespace ckpt::coordinator
