// SPDX-License-Identifier: Apache-2.0
#include "coordinator/gangs/protections.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <functional>

#include "libckpt/base/clock.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::coordinator {
namespace {

std::string pause_text(const std::optional<double>& pause) {
  return pause ? fmt::format("each snapshot is expected to pause the job for {:.1f} ms", *pause)
               : "the pause of each snapshot is not known yet: take one with `snapshot` to measure it";
}

// Returns the longest expected pause of the ranks, or nullopt if the pause of a rank is not known.
std::optional<double> expected_pause_of(const WholeJob& job) {
  double longest = 0;
  for (const Job* rank : job.ranks) {
    const auto pause = pause_of_last(*rank);
    if (!pause) return std::nullopt;
    longest = std::max(longest, *pause);
  }
  return longest;
}

const Job* first_rank(const WholeJob& job, const std::function<bool(const Job&)>& matches) {
  const auto at =
      std::find_if(job.ranks.begin(), job.ranks.end(), [&](const Job* rank) { return matches(*rank); });
  return at == job.ranks.end() ? nullptr : *at;
}

bool is_protected(const Job& rank) {
  return rank.protection.has_value();
}

std::set<std::string> nodes_of(const WholeJob& job) {
  std::set<std::string> nodes;
  for (const Job* rank : job.ranks) nodes.insert(rank->node());
  return nodes;
}

// Returns a hint if a rank's images are on the node where the rank runs, because they are lost with that
// node.
std::string hint_of_loss(const WholeJob& job, const Destination& to) {
  std::set<std::string> nodes;
  for (const Job* rank : job.ranks)
    if (to.folder.empty() && checkpoint_store_node(*rank, to) == rank->node()) nodes.insert(rank->node());
  if (nodes.empty()) return {};
  const bool is_one = nodes.size() == 1;
  return fmt::format(
      "its images are in the checkpoint store{} of {}, where the job runs, and would be lost with {} node. "
      "Use --to to name another node or a shared folder",
      is_one ? "" : "s", fmt::join(nodes, ", "), is_one ? "that" : "such a");
}

// Returns the protection for the new request. Facts about the last snapshot are preserved.
Protection requested_protection(const WholeJob& job, const ProtectRequest& wish, const Destination& to) {
  const Job* before = first_rank(job, is_protected);
  Protection protection = before == nullptr ? Protection() : *before->protection;
  protection.every_ms = wish.every_ms;
  protection.folder = to.folder;
  protection.node = to.node;
  protection.keep = wish.keep;
  protection.failures = 0;
  protection.error.clear();
  return protection;
}

}  // namespace

void Protections::start() {
  for (const auto& [id, rank] : deps_.jobs.all()) {
    if (const auto& protection = rank.protection)
      schedule_.protect(rank.whole(), protection->every_ms, protection->begun_ms, protection->failures);
  }
  control::spawn(deps_.executor, "the schedule of snapshots", run());
}

Result<Protected> Protections::plan(JobId whole, const ProtectRequest& wish) const {
  CKPT_TRY(job, deps_.images.find(whole));
  if (is_ended(state_of(job)))
    return Error(ErrorCode::kRefused, "Job " + job.name + " is " + std::string(to_string(state_of(job))));
  if (const std::string reason = deps_.images.why_never(job); !reason.empty())
    return Error(ErrorCode::kRefused, "Job " + job.name + " cannot be protected: " + reason);
  CKPT_TRY(destination, destination_of(wish.to, deps_.nodes));
  Protected answer;
  answer.expected_pause_ms = expected_pause_of(job);
  if (first_rank(job, pays_for_host_state) != nullptr) answer.note = pause_text(answer.expected_pause_ms);
  const Job* too_often =
      first_rank(job, [&wish](const Job& rank) { return is_too_often(rank, wish.every_ms); });
  if (too_often != nullptr && !wish.force)
    return Error(ErrorCode::kRefused,
                 fmt::format("Job {} is {}: a snapshot saves and restores its context and its process, and "
                             "{}. Use an interval of at least 5m, or --force",
                             job.name, to_string(too_often->spec.mode), answer.note));
  if (const std::string hint = hint_of_loss(job, destination); !hint.empty())
    answer.note += (answer.note.empty() ? "" : "; ") + hint;
  answer.protection = requested_protection(job, wish, destination);
  return answer;
}

control::Task<Result<void>> Protections::check(JobId whole, Destination to) {
  std::vector<JobId> ranks;  // ids only, because a job may be removed while a node is queried
  for (const Job* rank : deps_.jobs.ranks_of(whole)) ranks.push_back(rank->id);
  for (const JobId rank : ranks) {
    CKPT_CO_TRYV(co_await deps_.orders.check(rank, to));
  }
  co_return ok();
}

control::Task<Result<Protected>> Protections::protect(JobId whole, ProtectRequest wish) {
  CKPT_CO_TRY(before, plan(whole, wish));
  Destination to = kept_at(before.protection);
  const auto works = co_await check(whole, std::move(to));
  const auto job = find_whole(deps_.jobs, whole);
  if (!job) co_return job_was_removed(whole);
  if (!works)
    co_return Error(
        ErrorCode::kRefused,
        fmt::format(
            "Job {} is not protected{}, because its images cannot be written: {}{}", job->name,
            wish.to.empty() ? "" : " at " + wish.to, works.error().to_string(),
            first_rank(*job, is_protected) != nullptr ? "; its current protection stays unchanged" : ""));
  CKPT_CO_TRY(answer, plan(whole, wish));
  if (wish.dry_run) co_return answer;
  CKPT_CO_TRYV(store(*job, answer.protection));
  schedule_.protect(whole, wish.every_ms, answer.protection.begun_ms, 0);
  log("job-protected", *job,
      fmt::format("job {} ({}) is protected every {} ms", job->name, job_text(whole), wish.every_ms));
  co_return answer;
}

Result<void> Protections::unprotect(JobId whole) {
  CKPT_TRY(job, deps_.images.find(whole));
  if (first_rank(job, is_protected) == nullptr)
    return Error(ErrorCode::kRefused, "Job " + job.name + " is not protected");
  CKPT_TRYV(store(job, std::nullopt));
  schedule_.drop(whole);
  log("job-unprotected", job, fmt::format("job {} ({}) is no longer protected", job.name, job_text(whole)));
  return ok();
}

Result<void> Protections::store(const WholeJob& job, const std::optional<Protection>& protection) {
  std::vector<Job> changed;
  for (const Job* rank : job.ranks) changed.emplace_back(*rank).protection = protection;
  return deps_.jobs.replace_all(std::move(changed));
}

// Adds an event. It names the node if all ranks are on one node.
void Protections::log(const char* kind, const WholeJob& job, const std::string& text) {
  const std::set<std::string> nodes = nodes_of(job);
  deps_.events.add(kind, text, nodes.size() == 1 ? *nodes.begin() : std::string(), job.id);
}

std::optional<std::set<std::string>> Protections::nodes_now(JobId whole) const {
  const auto job = find_whole(deps_.jobs, whole);
  if (!job || !deps_.images.why_none(*job).empty()) return std::nullopt;
  // No images are taken of a job with such a rank. Memory with an open doubt must not be read any more.
  const auto is_doubted = [](const Job& rank) { return open_doubt(rank.doubts) != nullptr; };
  if (first_rank(*job, is_doubted) != nullptr) return std::nullopt;
  return nodes_of(*job);
}

control::Task<> Protections::capture(JobId whole) {
  const std::int64_t begun = wall_clock_ms();
  const auto job = find_whole(deps_.jobs, whole);
  const Job* known = job ? first_rank(*job, is_protected) : nullptr;
  if (known == nullptr) {
    schedule_.drop(whole);
    co_return;
  }
  for (Job* rank : job->ranks)
    if (rank->protection)
      rank->protection->begun_ms = begun;  // stored later, together with the snapshot's
                                           // outcome
  Destination to = kept_at(*known->protection);
  const auto captured = co_await deps_.images.capture(whole, std::move(to));
  // Images that a move or the job's end has prevented do not count as failed.
  schedule_.ended(whole, wall_clock_ms(), captured.has_value() || !nodes_now(whole));
  note(whole, captured);
  deps_.jobs.changed().notify();
}

void Protections::note(JobId whole, const Result<void>& captured) {
  const auto job = find_whole(deps_.jobs, whole);
  const Job* known = job ? first_rank(*job, is_protected) : nullptr;
  if (known == nullptr || (!captured && !nodes_now(whole))) return;
  const Protection protection = after_snapshot(*known->protection, captured);
  if (auto stored = store(*job, protection); !stored)
    spdlog::error("the result of the images of {} was not stored: {}", job_text(whole),
                  stored.error().to_string());
  if (captured || is_ended(state_of(*job))) return;
  log("snapshot-failed", *job,
      fmt::format("no images of job {} ({}) were taken, failure {} in a row: {}", job->name, job_text(whole),
                  protection.failures, captured.error().to_string()));
}

control::Task<> Protections::run() {
  constexpr std::chrono::milliseconds kLongestSleep{1000};
  while (true) {
    const std::int64_t now = wall_clock_ms();
    schedule_.drop_removed([this](JobId whole) { return !deps_.jobs.ranks_of(whole).empty(); });
    for (const JobId whole : schedule_.due(now, [this](JobId job) { return nodes_now(job); })) {
      schedule_.began(whole, nodes_now(whole).value_or(std::set<std::string>()), now);
      control::spawn(deps_.executor, "protecting " + job_text(whole), capture(whole));
    }
    auto sleep = kLongestSleep;
    if (const auto next = schedule_.next_due(now))
      sleep = std::min(sleep, std::chrono::milliseconds(std::max<std::int64_t>(1, *next - now)));
    co_await deps_.jobs.changed().wait_until(std::chrono::steady_clock::now() + sleep);
  }
}

}  // namespace ckpt::coordinator
