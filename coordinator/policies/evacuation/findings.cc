// SPDX-License-Identifier: Apache-2.0
#include "coordinator/policies/evacuation/findings.h"

#include <algorithm>
#include <map>
#include <utility>

namespace ckpt::coordinator {
namespace {

using wire::HealthOutcome;

// The time before a finding in which a job's end counts as caused by the fault. Affected jobs exit while the
// agent still collects the related findings.
constexpr std::int64_t kDeathBeforeFindingMs = 60'000;

struct Newest {
  const Finding* cordoning = nullptr;
  const Finding* other = nullptr;
};

// Checks whether the job failed on its own, at about the time when its GPU failed.
bool died_of(const Job& job, const Finding& finding) {
  return !job.stop_requested && job.exit_code != 0 &&
         job.ended_ms >= finding.reported.time_ms - kDeathBeforeFindingMs;
}

}  // namespace

bool Finding::is_suspicion() const {
  if (paused) return false;
  const auto is_against = [](HealthOutcome outcome) { return outcome != HealthOutcome::kNone; };
  return reported.cordon || is_against(reported.outcome) ||
         std::any_of(reported.jobs.begin(), reported.jobs.end(),
                     [&](const wire::JobVerdict& verdict) { return is_against(verdict.outcome); });
}

bool concerns(HealthOutcome outcome) {
  return outcome == HealthOutcome::kLive || outcome == HealthOutcome::kRestore;
}

const wire::JobVerdict* verdict_of(const wire::HealthFinding& finding, JobId job) {
  const auto at = std::find_if(finding.jobs.begin(), finding.jobs.end(),
                               [job](const wire::JobVerdict& verdict) { return verdict.job == job; });
  return at == finding.jobs.end() ? nullptr : &*at;
}

HealthOutcome outcome_for(const wire::HealthFinding& finding, const Job& job) {
  const wire::JobVerdict* verdict = verdict_of(finding, job.id);
  const bool is_named = verdict != nullptr && (verdict->incarnation == job.incarnation ||
                                               verdict->incarnation == job.segments.back().incarnation);
  return is_named ? verdict->outcome : finding.outcome;
}

std::vector<const Finding*> standing_findings(const std::vector<Finding>& all,
                                              const std::function<bool(const Place&)>& is_cordoned,
                                              std::int64_t now_ms) {
  std::map<std::pair<std::string, std::uint32_t>, Newest> newest;
  for (auto at = all.rbegin(); at != all.rend(); ++at) {
    if (!at->acted || at->paused) continue;
    const bool is_recent = at->reported.time_ms > now_ms - kSuspicionMs;
    if (!at->reported.cordon && !(is_recent && concerns(at->reported.outcome))) continue;
    Newest& of_gpu = newest[{at->node, at->reported.gpu}];
    const Finding*& counts = at->reported.cordon ? of_gpu.cordoning : of_gpu.other;
    if (counts != nullptr) continue;
    if (!at->reported.cordon || is_cordoned(at->place())) counts = &*at;
  }
  std::vector<const Finding*> standing;
  for (const auto& [gpu, found] : newest) {
    if (found.cordoning != nullptr && concerns(found.cordoning->reported.outcome))
      standing.push_back(found.cordoning);
    else if (found.other != nullptr)
      standing.push_back(found.other);
  }
  return standing;
}

bool is_on(const Place& place, const Job& job) {
  return std::any_of(job.ranks.begin(), job.ranks.end(),
                     [&](const JobRank& rank) { return rank.place == place; });
}

Evacuation evacuation_of(const Job& job, const Finding& finding, HealthOutcome outcome, std::int64_t now_ms) {
  const wire::JobVerdict* verdict = verdict_of(finding.reported, job.id);
  Evacuation e;
  e.job = job.id;
  e.incarnation = job.segments.back().incarnation;
  e.job_name = job.spec.name;
  e.from = finding.place();
  e.outcome = outcome;
  e.urgent = finding.reported.urgent;
  e.leave_node = finding.reported.leave_node;
  e.revive = outcome == HealthOutcome::kRestore && verdict != nullptr;
  e.reason = verdict != nullptr && !verdict->reason.empty() ? verdict->reason : finding.reported.reason;
  e.created_ms = now_ms;
  return e;
}

std::optional<Evacuation> evacuation_for(const Job& job, const Finding& finding, std::int64_t now_ms) {
  if (job.state == JobState::kParked || !is_on(finding.place(), job)) return std::nullopt;
  const wire::JobVerdict* verdict = verdict_of(finding.reported, job.id);
  const bool named = verdict != nullptr;
  const HealthOutcome outcome = named ? verdict->outcome : finding.reported.outcome;
  if (!concerns(outcome)) return std::nullopt;
  if (is_ended(job.state) && !(named && outcome == HealthOutcome::kRestore && died_of(job, finding)))
    return std::nullopt;
  return evacuation_of(job, finding, outcome, now_ms);
}

std::optional<Evacuation> arrival_of(const Job& job, const Finding& finding, std::int64_t now_ms) {
  // A job that is being restored is not evacuated, because it is already leaving the GPU.
  const bool is_there = holds_gpu(job.state) && job.state != JobState::kRestoring && !job.operation;
  if (!is_there || !is_on(finding.place(), job)) return std::nullopt;
  const HealthOutcome outcome = outcome_for(finding.reported, job);
  if (!concerns(outcome)) return std::nullopt;
  Evacuation arrived = evacuation_of(job, finding, outcome, now_ms);
  arrived.reason = "it was moved to a faulty GPU: " + finding.reported.reason;
  return arrived;
}

bool has_decided(const Evacuation& evacuation, const Job& job, const Place& place) {
  const bool same = evacuation.incarnation == 0 || evacuation.incarnation == job.segments.back().incarnation;
  return evacuation.job == job.id && evacuation.from == place && (evacuation.open() || same);
}

std::optional<Job> doubted(const Job& job, const Finding& finding) {
  const bool lived = holds_gpu(job.state) || job.ended_ms >= finding.reported.time_ms;
  if (!lived || job.state == JobState::kRestoring || !is_on(finding.place(), job)) return std::nullopt;
  if (outcome_for(finding.reported, job) != HealthOutcome::kRestore) return std::nullopt;
  Doubt doubt;
  doubt.since_ms = finding.reported.time_ms;
  doubt.from = job.incarnation;
  doubt.reason = finding.reported.reason;
  Job changed = job;
  if (!add_doubt(changed.doubts, doubt)) return std::nullopt;
  if (changed.protection)
    changed.protection->error =
        "no image is taken, since the job's memory must no longer be read: " + doubt.reason;
  return changed;
}

bool is_coming(const Migration& migration, const Place& place) {
  return migration.to == place && migration.phase < MigrationPhase::kCommitted &&
         migration.abort_cause == AbortCause::kNone;
}

}  // namespace ckpt::coordinator
