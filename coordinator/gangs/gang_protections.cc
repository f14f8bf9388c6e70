// SPDX-License-Identifier: Apache-2.0
#include "coordinator/gangs/gang_protections.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "coordinator/images/wait_for_change.h"
#include "libckpt/base/clock.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {

void GangProtections::start() {
  control::spawn(deps_.executor, "the schedule of gangs' images", run());
}

control::Task<> GangProtections::run() {
  while (true) {
    check();
    co_await wait_for_change(deps_.jobs);
  }
}

void GangProtections::check() {
  std::set<JobId> due;
  for (const Job& job : deps_.jobs.live()) {
    const auto& protection = job.protection;
    if (job.spec.gang.id == 0 || !protection || taking_.contains(job.spec.gang.id)) continue;
    if (is_set_due(*protection, wall_clock_ms())) due.insert(job.spec.gang.id);
  }
  for (const JobId id : due) {
    const auto gang = find_whole(deps_.jobs, id);
    if (!gang || !deps_.images.why_none(*gang).empty()) continue;
    taking_.insert(id);
    control::spawn(deps_.executor, "protecting " + job_text(id), take(id));
  }
}

control::Task<> GangProtections::take(JobId id) {
  const auto before = find_whole(deps_.jobs, id);
  if (!before || !before->ranks.front()->protection) {  // the gang was removed, or is no longer protected
    taking_.erase(id);
    co_return;
  }
  Protection protection = *before->ranks.front()->protection;
  protection.begun_ms = wall_clock_ms();
  const auto taken = co_await deps_.images.snapshot(id, kept_at(protection), 0);
  taking_.erase(id);
  const auto gang = find_whole(deps_.jobs, id);
  if (!gang || !gang->ranks.front()->protection) co_return;
  const Result<void> outcome = taken ? Result<void>(ok()) : Result<void>(taken.error());
  Protection now = after_snapshot(*gang->ranks.front()->protection, outcome);
  now.begun_ms = protection.begun_ms;
  if (auto stored = store(*gang, now); !stored)
    spdlog::error("the result of the images of {} was not stored: {}", job_text(id),
                  stored.error().to_string());
  if (taken || is_ended(state_of(*gang))) co_return;
  deps_.events.add("snapshot-failed",
                   fmt::format("no images of job {} ({}) were taken, failure {} in a row: {}", gang->name,
                               job_text(id), now.failures, now.error),
                   "", id);
}

Result<Protected> GangProtections::plan(const WholeJob& gang, const ProtectRequest& wish) const {
  if (is_ended(state_of(gang)))
    return Error(ErrorCode::kRefused, "Job " + gang.name + " is " + std::string(to_string(state_of(gang))));
  for (const Job* rank : gang.ranks) {
    if (rank->spec.mode != MigrationMode::kCooperative)
      return Error(
          ErrorCode::kRefused,
          fmt::format("Rank {} of job {} is {}: only ranks that call ckpt_barrier can stop at a common step",
                      rank->rank_number(), gang.name, to_string(rank->spec.mode)));
  }
  CKPT_TRY(destination, destination_of(wish.to, deps_.nodes));
  Protected answer;
  if (destination.folder.empty() && destination.node.empty())
    answer.note =
        "its images are in the checkpoint stores of the nodes where its ranks run, and are lost with such a "
        "node; name another node or a shared folder with --to";
  answer.protection = requested_protection(*gang.ranks.front(), wish, destination);
  return answer;
}

control::Task<Result<Protected>> GangProtections::protect(JobId id, ProtectRequest wish) {
  const auto before = find_whole(deps_.jobs, id);
  if (!before) co_return job_was_removed(id);
  CKPT_CO_TRY(planned, plan(*before, wish));
  std::vector<JobId> ranks;
  for (const Job* rank : before->ranks) ranks.push_back(rank->id);
  for (const JobId rank : ranks) {
    const auto works = co_await deps_.orders.check(rank, kept_at(planned.protection));
    if (!works)
      co_return Error(ErrorCode::kRefused,
                      "The job is not protected: no image of " + job_text(rank) +
                          " can be written to the requested place: " + works.error().to_string());
  }
  if (wish.dry_run) co_return planned;
  const auto gang = find_whole(deps_.jobs, id);
  if (!gang) co_return job_was_removed(id);
  CKPT_CO_TRY(answer, plan(*gang, wish));
  CKPT_CO_TRYV(store(*gang, answer.protection));
  deps_.events.add(
      "job-protected",
      fmt::format("job {} ({}) is protected every {} ms", gang->name, job_text(id), wish.every_ms), "", id);
  co_return answer;
}

Result<void> GangProtections::unprotect(JobId id) {
  const auto gang = find_whole(deps_.jobs, id);
  if (!gang) return job_was_removed(id);
  if (!gang->ranks.front()->protection)
    return Error(ErrorCode::kRefused, "Job " + gang->name + " is not protected");
  CKPT_TRYV(store(*gang, std::nullopt));
  deps_.events.add("job-unprotected",
                   fmt::format("job {} ({}) is no longer protected", gang->name, job_text(id)), "", id);
  return ok();
}

Result<void> GangProtections::store(const WholeJob& gang, const std::optional<Protection>& protection) {
  std::vector<Job> changed;
  for (const Job* rank : gang.ranks) changed.emplace_back(*rank).protection = protection;
  return deps_.jobs.replace_all(std::move(changed));
}

}  // namespace ckpt::coordinator
