// SPDX-License-Identifier: Apache-2.0
// The part of Evacuations that keeps jobs away from a GPU with a standing finding, and moves jobs that arrive
// nevertheless. Such a job's move, restore or start may have been under way.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "coordinator/health/evacuations.h"
#include "libckpt/base/clock.h"

namespace ckpt::coordinator {

// Marks the images of affected jobs as suspect. This also applies while the policy is paused: nothing is done
// to the job then, but its images are not trusted.
void Evacuations::doubt_images(const Finding& finding) {
  std::vector<Job> changed;
  for (const auto& [id, job] : deps_.jobs.all()) {
    if (auto doubted_job = doubted(job, finding)) changed.push_back(*std::move(doubted_job));
  }
  for (Job& job : changed) {
    const JobId id = job.id;
    if (auto stored = deps_.jobs.replace(std::move(job)); !stored)
      spdlog::error("the mark that images of {} are suspect was not stored: {}", job_text(id),
                    stored.error().to_string());
  }
}

void Evacuations::take_in_arrivals() {
  std::erase_if(given_up_, [this](MigrationId id) { return !deps_.migrations.open_ids().contains(id); });
  const auto is_cordoned = [this](const Place& place) {
    return deps_.cordons.find(Scope(place.node, place.gpu), CordonOwner::kHealth) != nullptr;
  };
  for (const Finding* finding : standing_findings(deps_.health.all(), is_cordoned, wall_clock_ms())) {
    if (deps_.policy.is_paused(finding->node)) continue;
    give_up_moves_to(*finding);
    doubt_images(*finding);
    std::vector<Evacuation> arrived = arrivals_at(*finding);
    if (arrived.empty()) continue;
    if (auto stored = deps_.table.store(std::move(arrived), [] { return Result<void>(ok()); }); !stored)
      spdlog::error("jobs that moved to {} are not evacuated: {}", to_text(finding->place()),
                    stored.error().to_string());
  }
}

std::vector<Evacuation> Evacuations::arrivals_at(const Finding& finding) const {
  std::vector<Evacuation> arrived;
  const Place place = finding.place();
  for (const Job& job : deps_.jobs.live()) {
    auto arrival = arrival_of(job, finding, wall_clock_ms());
    if (!arrival) continue;
    const auto& all = deps_.table.all();
    const bool decided = std::any_of(all.begin(), all.end(),
                                     [&](const auto& at) { return has_decided(at.second, job, place); });
    if (!decided) arrived.push_back(*std::move(arrival));
  }
  return arrived;
}

void Evacuations::give_up_moves_to(const Finding& finding) {
  const Place place = finding.place();
  std::vector<MigrationId> coming;
  for (const Migration& migration : deps_.migrations.open()) {
    if (is_coming(migration, place)) coming.push_back(migration.id);
  }
  for (const MigrationId id : coming) {
    if (!given_up_.insert(id).second) continue;
    // If the request arrives too late, the job arrives and is then moved again. This is not a failure.
    if (auto asked = deps_.migration_runner.give_up(
            id, to_text(place) + " no longer accepts jobs: " + finding.reported.reason);
        !asked)
      spdlog::info("migration {} was not aborted: {}", migration_text(id), asked.error().to_string());
  }
}

}  // namespace ckpt::coordinator
