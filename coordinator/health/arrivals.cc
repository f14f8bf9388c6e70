// SPDX-License-Identifier: Apache-2.0
// The half of Evacuations that keeps jobs from coming to a GPU with a finding that stands, and moves those
// that came nevertheless: a move, a restore or a start may have been under way.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "coordinator/health/evacuations.h"
#include "libckpt/base/clock.h"

namespace ckpt::coordinator {

// Also where the policy is paused: nothing is done to the job, but its images are not trusted.
void Evacuations::doubt_images(const Finding& finding) {
  std::vector<Job> changed;
  for (const auto& [id, job] : deps_.jobs.all()) {
    const bool lived = holds_gpu(job.state) || job.ended_ms >= finding.reported.time_ms;
    if (!lived || job.state == JobState::kRestoring || !is_on(finding.place(), job)) continue;
    if (outcome_for(finding.reported, job) != wire::HealthOutcome::kRestore) continue;
    Doubt doubt;
    doubt.since_ms = finding.reported.time_ms;
    doubt.from = job.incarnation;
    doubt.reason = finding.reported.reason;
    Job doubted = job;
    if (!add_doubt(doubted.doubts, doubt)) continue;
    if (doubted.protection)
      doubted.protection->error =
          "no image is taken, since its memory must not be read any more: " + doubt.reason;
    changed.push_back(std::move(doubted));
  }
  for (Job& job : changed) {
    const JobId id = job.id;
    if (auto stored = deps_.jobs.replace(std::move(job)); !stored)
      spdlog::error("that images of {} are suspect was not stored: {}", job_text(id),
                    stored.error().to_string());
  }
}

void Evacuations::take_in_arrivals() {
  std::erase_if(given_up_, [this](MigrationId id) { return !deps_.migrations.open_ids().contains(id); });
  for (const Finding* finding : standing_findings(deps_.health.all(), deps_.cordons, wall_clock_ms())) {
    if (deps_.policy.is_paused(finding->node)) continue;
    give_up_moves_to(*finding);
    doubt_images(*finding);
    std::vector<Evacuation> arrived = arrivals_at(*finding);
    if (arrived.empty()) continue;
    if (auto stored = deps_.table.store(std::move(arrived), [] { return Result<void>(ok()); }); !stored)
      spdlog::error("jobs that came to {} are not evacuated: {}", to_text(finding->place()),
                    stored.error().to_string());
  }
}

std::vector<Evacuation> Evacuations::arrivals_at(const Finding& finding) const {
  std::vector<Evacuation> arrived;
  for (const Job& job : deps_.jobs.live()) {
    // One that is being restored is on its way out of there.
    const bool is_there = holds_gpu(job.state) && job.state != JobState::kRestoring && !job.operation;
    if (!is_there || !is_on(finding.place(), job) || was_decided(job, finding.place())) continue;
    const auto outcome = outcome_for(finding.reported, job);
    if (outcome == wire::HealthOutcome::kNone || outcome == wire::HealthOutcome::kInvalid) continue;
    arrived.push_back(evacuation_of(job, finding, outcome));
    arrived.back().reason = "it came to a GPU in trouble: " + finding.reported.reason;
  }
  return arrived;
}

bool Evacuations::was_decided(const Job& job, const Place& place) const {
  const auto& all = deps_.table.all();
  return std::any_of(all.begin(), all.end(), [&](const auto& at) {
    const Evacuation& e = at.second;
    const bool same = e.incarnation == 0 || e.incarnation == job.segments.back().incarnation;
    return e.job == job.id && e.from == place && (e.open() || same);
  });
}

void Evacuations::give_up_moves_to(const Finding& finding) {
  const Place place = finding.place();
  std::vector<MigrationId> coming;
  for (const Migration& migration : deps_.migrations.open()) {
    const bool may_stop = migration.phase < MigrationPhase::kCommitted;
    if (migration.to == place && may_stop && migration.abort_cause == AbortCause::kNone)
      coming.push_back(migration.id);
  }
  for (const MigrationId id : coming) {
    if (!given_up_.insert(id).second) continue;
    // Too late is no failure: it comes, and is moved on.
    if (auto asked = deps_.migration_runner.give_up(
            id, to_text(place) + " takes no jobs any more: " + finding.reported.reason);
        !asked)
      spdlog::info("{} is not given up: {}", migration_text(id), asked.error().to_string());
  }
}

}  // namespace ckpt::coordinator
