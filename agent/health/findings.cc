// SPDX-License-Identifier: Apache-2.0
#include "agent/health/findings.h"

#include <algorithm>

namespace ckpt::agent {
namespace {

constexpr std::size_t kMaxReasonBytes = 400;
constexpr std::size_t kMaxJobs = 256;
constexpr std::size_t kMaxReportBytes = std::size_t{200} << 10;

wire::HealthOutcome to_wire(health::Outcome outcome) {
  switch (outcome) {
    case health::Outcome::kNone:
      return wire::HealthOutcome::kNone;
    case health::Outcome::kLive:
      return wire::HealthOutcome::kLive;
    case health::Outcome::kRestore:
      return wire::HealthOutcome::kRestore;
  }
  return wire::HealthOutcome::kNone;
}

// Returns the source of the event that has the decision's Xid, or of the first event. The kernel log is
// preferred.
std::string source_of(const std::vector<SeenEvent>& seen, const health::Decision& decision) {
  const auto said_xid = std::find_if(seen.begin(), seen.end(), [&](const SeenEvent& event) {
    return decision.xid != 0 && event.xid == decision.xid;
  });
  const auto by_log = std::find_if(seen.begin(), seen.end(), [&](const SeenEvent& event) {
    return decision.xid != 0 && event.xid == decision.xid && event.source == "kernel-log";
  });
  if (by_log != seen.end()) return by_log->source;
  if (said_xid != seen.end()) return said_xid->source;
  return seen.front().source;
}

}  // namespace

wire::HealthFinding finding_of(const KnownGpu& gpu, const std::vector<SeenEvent>& seen,
                               const std::vector<std::shared_ptr<Job>>& jobs,
                               const health::Decision& decision) {
  wire::HealthFinding finding;
  finding.gpu = gpu.index;
  finding.gpu_uuid = gpu.uuid;
  finding.source = source_of(seen, decision);
  finding.xid = decision.xid;
  finding.recovery = decision.recovery;
  // A card that has replaced the GPU gets no cordon, and jobs that are not named get no text.
  finding.cordon = decision.cordon && !gpu.replaced;
  finding.urgent = decision.urgent;
  finding.leave_node = decision.leave_node;
  finding.outcome = gpu.replaced ? wire::HealthOutcome::kNone : to_wire(decision.outcome);
  finding.reason = decision.reason.substr(0, kMaxReasonBytes);
  if (gpu.gone)
    finding.reason += " (" + gpu.uuid + (gpu.replaced ? "; that slot now holds a different card)" : ")");
  for (std::size_t i = 0; i < jobs.size() && i < kMaxJobs; ++i) {
    wire::JobVerdict verdict;
    verdict.job = jobs[i]->id();
    verdict.incarnation = jobs[i]->incarnation();
    verdict.outcome = to_wire(decision.processes[i].outcome);
    verdict.reason = decision.processes[i].reason.substr(0, kMaxReasonBytes);
    finding.jobs.push_back(std::move(verdict));
  }
  return finding;
}

std::vector<wire::HealthReport> reports_of(const std::vector<wire::HealthFinding>& findings,
                                           std::uint64_t max_number) {
  std::vector<wire::HealthReport> reports;
  std::size_t bytes = 0;
  for (const wire::HealthFinding& finding : findings) {
    if (finding.number > max_number) continue;
    const std::size_t size = wire::encode(finding).size();
    if (reports.empty() || bytes + size > kMaxReportBytes) {
      reports.emplace_back();
      bytes = 0;
    }
    reports.back().findings.push_back(finding);
    bytes += size;
  }
  return reports;
}

void drop_least(std::vector<wire::HealthFinding>& findings) {
  const auto quiet = std::find_if(findings.begin(), findings.end(), [](const wire::HealthFinding& finding) {
    return finding.outcome == wire::HealthOutcome::kNone && !finding.cordon;
  });
  findings.erase(quiet != findings.end() ? quiet : findings.begin());
}

}  // namespace ckpt::agent
