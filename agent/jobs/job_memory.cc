// SPDX-License-Identifier: Apache-2.0
#include "agent/jobs/job_memory.h"

#include <algorithm>

#include "agent/host_process/processes/process_tree.h"
#include "agent/jobs/adoption.h"
#include "libckpt/net/control/at_once.h"

namespace ckpt::agent {
namespace {

constexpr std::chrono::seconds kInterval{5};
// The interval between queries while a job has just started and allocates memory. The job's own sum counts an
// allocation after the driver has made it.
constexpr std::chrono::seconds kIntervalWhileStarting{1};
constexpr std::int64_t kStartingMs = 30'000;

}  // namespace

Task<> JobMemory::sample() {
  last_sample_ = co_await ask_at_one_moment(*this);
  find_processes();
}

// Finds the job's processes by their descent from the first process, independent of their reports to the
// keeper.
void JobMemory::find_processes() {
  processes_.clear();
  for (const GpuFacts& gpu : inventory_.last().gpus) {
    for (const GpuProcess& process : gpu.processes) {
      if (process.pid <= 0) continue;
      const std::vector<pid_t> line = host::line_of(process.pid);
      for (const auto& job : jobs_.all()) {
        const auto first = static_cast<pid_t>(job->rank_pid());
        if (!job->ended() && std::find(line.begin(), line.end(), first) != line.end())
          processes_[job->folder()].insert(process.pid);
      }
    }
  }
}

GpuProcesses JobMemory::processes_of(const Job& job) const {
  const auto found = processes_.find(job.folder());
  GpuProcesses all = found == processes_.end() ? GpuProcesses{} : found->second;
  all.insert(job.gpu_process());
  return all;
}

std::chrono::seconds JobMemory::interval() const {
  const auto now_ms = static_cast<std::int64_t>(wall_clock_ms());
  const auto jobs = jobs_.all();
  const bool starting = std::any_of(jobs.begin(), jobs.end(), [&](const auto& job) {
    return !job->ended() && now_ms - static_cast<std::int64_t>(job->record().started_unix_ms) < kStartingMs;
  });
  return starting ? kIntervalWhileStarting : kInterval;
}

void JobMemory::add_known(const Job& job, wire::JobInstance& instance) const {
  add_device_bytes(inventory_.last(), processes_of(job), instance);
}

void JobMemory::count(const Job& job, wire::JobInstance& instance) const {
  const std::vector<wire::RankState> no_ranks;
  const auto then = last_sample_.find(job.folder());
  count_device_bytes(inventory_.last(), processes_of(job),
                     then == last_sample_.end() ? no_ranks : then->second, instance);
}

Task<> JobMemory::describe(std::shared_ptr<Job> job) {
  co_await job->refresh_summary();
}

// Queries the jobs. If `again` is true, the function omits jobs that did not answer the previous query,
// because they would only delay the other jobs.
Task<> JobMemory::describe_jobs(bool again) {
  std::vector<Task<>> asked;
  for (const auto& job : jobs_.all()) {
    if (!again && job->phase() == local::Phase::kStarting) co_await job->detect_shim();
    if (job->phase() != local::Phase::kRunning || is_held_(job->id())) continue;
    if (again && job->is_silent()) continue;
    if (job->record().spec.mode == MigrationMode::kAdopted && job->record().migration == 0)
      job->device_bytes_are(device_bytes_of(inventory_.last(), job->record().spec.adopt_pid));
    asked.push_back(describe(job));
  }
  co_await control::at_once(co_await asio::this_coro::executor, "a job's description", std::move(asked));
}

Task<> JobMemory::ask_driver() {
  return inventory_.refresh();
}

RanksOfJobs JobMemory::ranks() const {
  RanksOfJobs found;
  for (const auto& job : jobs_.all()) {
    wire::JobInstance instance = job->instance();
    const bool gone = instance.phase == wire::JobPhase::kExited || instance.phase == wire::JobPhase::kMoved;
    if (!gone) found.emplace(job->folder(), std::move(instance.ranks));
  }
  return found;
}

}  // namespace ckpt::agent
