// SPDX-License-Identifier: Apache-2.0
#include "agent/health/evidence.h"

#include <algorithm>

#include "agent/host_process/processes/process_tree.h"

namespace ckpt::agent {
namespace {

bool is_its_process(const Job& job, std::int32_t pid) {
  if (job.rank_pid() == 0) return false;
  if (static_cast<std::int32_t>(job.rank_pid()) == pid) return true;
  const auto tree = host::processes_of(static_cast<pid_t>(job.rank_pid()));
  if (!tree) return false;
  return std::find(tree->begin(), tree->end(), pid) != tree->end();
}

// Checks whether the kernel's log has reported the same Xid with more text.
bool has_richer_duplicate(const SeenEvent& event, const std::vector<SeenEvent>& seen) {
  return event.source == "nvml" && std::any_of(seen.begin(), seen.end(), [&](const SeenEvent& other) {
           return other.source == "kernel-log" && other.xid == event.xid;
         });
}

health::GpuProbe probe_of(const SeenEvent& event) {
  constexpr auto kLast = static_cast<std::uint8_t>(health::GpuProbe::kHung);
  return event.probe <= kLast ? static_cast<health::GpuProbe>(event.probe) : health::GpuProbe::kNotTried;
}

health::SeenXid xid_of(const SeenEvent& event, const std::string& gpu,
                       const std::vector<std::shared_ptr<Job>>& jobs, const EvidenceRules& rules) {
  health::SeenXid xid;
  if (const auto line = health::parse_xid_line(event.line)) xid = health::seen_of(rules.table, *line);
  xid.xid = event.xid;
  if (event.pid != 0) xid.victim = -1;  // the process belongs to no job, unless the loop finds its job
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (event.job == jobs[i]->id() && event.incarnation == jobs[i]->incarnation())
      xid.victim = static_cast<std::int32_t>(i) + 1;
  }
  health::RepeatRule rule;
  rule.jobs = rules.repeats;
  if (const health::XidRow* row = rules.table.xid(event.xid))
    xid.suspicion = rules.history.suspicion(gpu, *row, rules.now_ms, rule);
  return xid;
}

}  // namespace

std::shared_ptr<Job> job_of_pid(const JobTable& jobs, std::int32_t pid) {
  std::shared_ptr<Job> found;
  for (const auto& job : jobs.all()) {
    if (!is_its_process(*job, pid)) continue;
    if (!found || found->ended()) found = job;
  }
  return found;
}

std::vector<Bystander> bystanders_of(const JobTable& jobs, const KnownGpu& gpu) {
  std::vector<Bystander> bystanders;
  for (const auto& job : jobs.all()) {
    if (job->ended() || job->gpu() != gpu.index) continue;
    Bystander& bystander = bystanders.emplace_back();
    bystander.gpu = gpu.uuid;
    bystander.job = job->id();
    bystander.incarnation = job->incarnation();
  }
  return bystanders;
}

// Returns the jobs that the GPU's events concern. If another card has replaced the GPU, the jobs at its
// number run on the new card. The result then contains only jobs that were seen on the old card.
std::vector<std::shared_ptr<Job>> jobs_concerned(const JobTable& jobs, const KnownGpu& gpu,
                                                 const std::vector<SeenEvent>& seen,
                                                 const std::vector<Bystander>& bystanders) {
  std::vector<std::shared_ptr<Job>> concerned;
  for (const auto& job : jobs.all()) {
    const auto is_it = [&](const auto& other) {
      return other.gpu == gpu.uuid && other.job == job->id() && other.incarnation == job->incarnation();
    };
    const bool was_there = std::any_of(bystanders.begin(), bystanders.end(), is_it) ||
                           std::any_of(seen.begin(), seen.end(), is_it);
    const bool is_there = gpu.replaced ? was_there : job->gpu() == gpu.index;
    const bool died = job->ended() && !job->record().moved && job->record().exit_code != 0;
    if (jobs.superseded(*job)) continue;
    if (job->ended() ? was_there && died : is_there) concerned.push_back(job);
  }
  return concerned;
}

health::Evidence evidence_of(const KnownGpu& gpu, const std::vector<SeenEvent>& seen,
                             const std::vector<std::shared_ptr<Job>>& jobs, const EvidenceRules& rules) {
  health::Evidence evidence;
  evidence.gpu.lost = gpu.lost;
  evidence.gpu.gone = gpu.gone;
  evidence.gpu.silent = gpu.silent;
  if (gpu.recovery_known && !gpu.silent) evidence.gpu.recovery = gpu.recovery;
  evidence.gpu.contains_errors = health::contains_memory_errors(gpu.model);
  for (const auto& job : jobs) {
    health::ProcessFacts process;
    process.pid = static_cast<std::int32_t>(evidence.processes.size()) + 1;
    process.probe = job->ended() ? health::Probe::kDead : health::Probe::kUnknown;
    evidence.processes.push_back(process);
  }
  for (const SeenEvent& event : seen) {
    evidence.gpu.lost = evidence.gpu.lost || event.lost;
    evidence.gpu.uncorrected += event.uncorrected;
    if (event.source == kProbeSource) {
      evidence.gpu.probe = probe_of(event);
      evidence.gpu.probe_detail = event.line;
    }
    if (event.xid == 0 || has_richer_duplicate(event, seen)) continue;
    evidence.xids.push_back(xid_of(event, gpu.uuid, jobs, rules));
  }
  return evidence;
}

}  // namespace ckpt::agent
