// SPDX-License-Identifier: Apache-2.0
#include "coordinator/images/protections.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "libckpt/base/clock.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {
namespace {

std::string pause_text(const std::optional<double>& pause) {
  return pause ? fmt::format("each snapshot is expected to stop it for {:.1f} ms", *pause)
               : "the pause of each snapshot is not known yet: take one with `snapshot` to measure it";
}

}  // namespace

Protection requested_protection(const Job& job, const ProtectRequest& wish, const Destination& to) {
  Protection protection = job.protection.value_or(Protection());
  protection.every_ms = wish.every_ms;
  protection.folder = to.folder;
  protection.node = to.node;
  protection.keep = wish.keep;
  protection.failures = 0;
  protection.error.clear();
  return protection;
}

void Protections::start() {
  for (const auto& [id, job] : deps_.jobs.all()) {
    if (job.protection && job.spec.gang.id == 0)  // gangs have their own schedule:
                                                  // coordinator/gangs/gang_protections.h
      schedule_.protect(id, job.protection->every_ms, job.protection->begun_ms, job.protection->failures);
  }
  control::spawn(deps_.executor, "the schedule of snapshots", run());
}

Result<Protected> Protections::plan(JobId id, const ProtectRequest& wish) const {
  const Job* job = deps_.jobs.find(id);
  if (job == nullptr) return Error(ErrorCode::kNotFound, "Job " + job_text(id) + " was removed");
  if (is_ended(job->state))
    return Error(ErrorCode::kRefused, "Job " + job->spec.name + " is " + std::string(to_string(job->state)));
  CKPT_TRYV(check_has_images(*job));
  if (job->spec.mode == MigrationMode::kAdopted)
    return Error(
        ErrorCode::kRefused,
        "Job " + job->spec.name + " was adopted, and has no images: start it with `run` to protect it");
  if (deps_.snapshots.lacks_context(*job))
    return Error(ErrorCode::kRefused,
                 "Job " + job->spec.name + " cannot be protected: " + deps_.snapshots.why_none(*job));
  CKPT_TRY(destination, destination_of(wish.to, deps_.nodes));
  Protected answer;
  answer.expected_pause_ms = pause_of_last(*job);
  if (pays_for_host_state(*job)) answer.note = pause_text(answer.expected_pause_ms);
  if (is_too_often(*job, wish.every_ms) && !wish.force)
    return Error(ErrorCode::kRefused,
                 fmt::format("Job {} is {}: a snapshot saves and restores its context and its process, and "
                             "{}. Use an interval of at least 5m, or --force",
                             job->spec.name, to_string(job->spec.mode), answer.note));
  if (destination.folder.empty() && checkpoint_store_node(*job, destination) == job->node())
    answer.note += fmt::format(
        "{}its images are in the checkpoint store of {}, where it runs, and are lost with that node; name "
        "another node or a shared folder with --to",
        answer.note.empty() ? "" : "; ", job->node());
  answer.protection = requested_protection(*job, wish, destination);
  return answer;
}

control::Task<Result<Protected>> Protections::protect(JobId id, ProtectRequest wish) {
  CKPT_CO_TRY(before, plan(id, wish));
  const Destination to = kept_at(before.protection);
  const auto works = co_await deps_.orders.check(id, to);
  const Job* job = deps_.jobs.find(id);
  if (!works && job != nullptr)
    co_return Error(
        ErrorCode::kRefused,
        fmt::format("Job {} is not protected{}: its images cannot be written there: {}{}", job->spec.name,
                    wish.to.empty() ? "" : " at " + wish.to, works.error().to_string(),
                    job->protection ? "; its current protection stays unchanged" : ""));
  CKPT_CO_TRY(answer, plan(id, wish));
  if (wish.dry_run) co_return answer;
  Job changed = *job;
  changed.protection = answer.protection;
  CKPT_CO_TRYV(deps_.jobs.replace(std::move(changed)));
  job = deps_.jobs.find(id);
  schedule_.protect(id, wish.every_ms, answer.protection.begun_ms, 0);
  deps_.events.add(
      "job-protected",
      fmt::format("job {} ({}) is protected every {} ms", job->spec.name, job_text(id), wish.every_ms),
      job->node(), id);
  co_return answer;
}

Result<void> Protections::unprotect(JobId id) {
  const Job* job = deps_.jobs.find(id);
  if (job == nullptr || !job->protection)
    return Error(ErrorCode::kRefused,
                 "Job " + (job == nullptr ? job_text(id) : job->spec.name) + " is not protected");
  Job changed = *job;
  changed.protection.reset();
  CKPT_TRYV(deps_.jobs.replace(std::move(changed)));
  schedule_.drop(id);
  deps_.events.add("job-unprotected",
                   "job " + job->spec.name + " (" + job_text(id) + ") is no longer protected", job->node(),
                   id);
  return ok();
}

std::optional<std::string> Protections::where_now(JobId id) const {
  const Job* job = deps_.jobs.find(id);
  // A job with an open doubt must not have its memory read any more.
  if (job == nullptr || open_doubt(job->doubts) != nullptr) return std::nullopt;
  return deps_.snapshots.why_none(*job).empty() ? std::optional(job->node()) : std::nullopt;
}

control::Task<> Protections::take_one(JobId id) {
  Job* job = deps_.jobs.find(id);
  if (job == nullptr || !job->protection) {
    schedule_.ended(id, wall_clock_ms(), false);
    co_return;
  }
  const std::int64_t begun = wall_clock_ms();
  job->protection->begun_ms = begun;  // stored together with the outcome
  const Destination to = kept_at(*job->protection);
  const auto taken = co_await deps_.snapshots.take(id, to, 0);
  // A snapshot that was prevented by a migration or by the job's end has not failed.
  schedule_.ended(id, wall_clock_ms(), taken.has_value() || !where_now(id));
  note(id, taken);
  deps_.jobs.changed().notify();
}

void Protections::note(JobId id, const Result<void>& taken) {
  const Job* job = deps_.jobs.find(id);
  if (job == nullptr || !job->protection) return;
  if (!taken && !where_now(id)) return;
  Job changed = *job;
  changed.protection = after_snapshot(*changed.protection, taken);
  const unsigned failures = changed.protection->failures;
  if (auto stored = deps_.jobs.replace(std::move(changed)); !stored)
    spdlog::error("the result of a snapshot of {} was not stored: {}", job_text(id),
                  stored.error().to_string());
  if (taken || is_ended(job->state)) return;
  deps_.events.add("snapshot-failed",
                   fmt::format("no image of job {} ({}) was taken, failure {} in a row: {}", job->spec.name,
                               job_text(id), failures, taken.error().to_string()),
                   job->node(), id);
}

control::Task<> Protections::run() {
  constexpr std::chrono::milliseconds kLongestSleep{1000};
  while (true) {
    const std::int64_t now = wall_clock_ms();
    for (const JobId id : schedule_.due(now, [this](JobId job) { return where_now(job); })) {
      schedule_.began(id, deps_.jobs.find(id)->node(), now);
      control::spawn(deps_.executor, "protecting " + job_text(id), take_one(id));
    }
    auto sleep = kLongestSleep;
    if (const auto next = schedule_.next_due(now))
      sleep = std::min(sleep, std::chrono::milliseconds(std::max<std::int64_t>(1, *next - now)));
    co_await deps_.jobs.changed().wait_until(std::chrono::steady_clock::now() + sleep);
  }
}

}  // namespace ckpt::coordinator
