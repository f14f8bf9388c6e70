// SPDX-License-Identifier: Apache-2.0
// The device memory that a job's rank uses, in bytes. An instance has one rank. Several of its processes may
// use the GPU, but such a rank cannot be moved.
// Threads: the event loop. Errors: none.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "agent/gpus/inventory.h"
#include "agent/io/async.h"
#include "libckpt/protocol/wire/node_messages.h"

namespace ckpt::agent {

using GpuProcesses = std::set<pid_t>;

// Sets the device bytes of the instance's rank to the currently known value. This is the driver's count of
// `processes`, but at least the rank's own sum. The driver's count includes contexts and unnamed allocations.
void add_device_bytes(const InventorySnapshot& snapshot, const GpuProcesses& processes,
                      wire::JobInstance& instance);
// Sets the device bytes to those at the time of the query to the driver. Placement adds them to the free
// memory that the driver reported, so memory that was allocated later must not count. `then` contains the
// ranks at that time. If the driver does not count, the ranks' own sums are used.
void count_device_bytes(const InventorySnapshot& snapshot, const GpuProcesses& processes,
                        const std::vector<wire::RankState>& then, wire::JobInstance& instance);

// The ranks of each job, by the job's folder.
using RanksOfJobs = std::map<std::string, std::vector<wire::RankState>>;

// The sources of the device memory of jobs: the jobs' own reports and the driver.
// Threads: the event loop. Ownership: outlives each query. Errors: none; a job that does not answer keeps its
// last report.
class MemorySources {
 public:
  virtual ~MemorySources() = default;
  // Requests from each job a report of the memory of its ranks. `again` means that the jobs were queried a
  // moment ago.
  virtual Task<> describe_jobs(bool again) = 0;
  virtual Task<> ask_driver() = 0;
  // Returns the last reports of the jobs.
  [[nodiscard]] virtual RanksOfJobs ranks() const = 0;
};
// Returns the ranks at the time of the driver's answer. If a job allocates or frees memory at that moment,
// the jobs and the driver are queried again, up to three times in all. Otherwise the memory could be missing
// in the answer and in every job.
Task<RanksOfJobs> ask_at_one_moment(MemorySources& sources);

}  // namespace ckpt::agent
