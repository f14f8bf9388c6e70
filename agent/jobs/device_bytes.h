// SPDX-License-Identifier: Apache-2.0
// How much of a GPU's memory a job's rank holds, in bytes. An instance has one rank; several of its processes
// may use the GPU, though it cannot be moved then.
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

// Adds the bytes that are known at this moment: the driver's count of `processes`, which includes contexts
// and unnamed allocations, and at least the rank's own sum.
void add_device_bytes(const InventorySnapshot& snapshot, const GpuProcesses& processes,
                      wire::JobInstance& instance);
// Counts the bytes at the time of the query to the driver. Memory that a job has taken since is still free in
// that answer, and placement adds the two up. `then`: the ranks at that time; where the driver does not
// count, their own sums are used.
void count_device_bytes(const InventorySnapshot& snapshot, const GpuProcesses& processes,
                        const std::vector<wire::RankState>& then, wire::JobInstance& instance);

// The ranks of each job, by the job's folder.
using RanksOfJobs = std::map<std::string, std::vector<wire::RankState>>;

// The jobs and the driver, as they are asked for memory.
// Threads: the event loop. Ownership: it outlives the question. Errors: none; a job that does not answer keeps
// its last report.
class MemorySources {
 public:
  virtual ~MemorySources() = default;
  // Has each job report what its ranks hold. `again`: it has been asked a moment ago.
  virtual Task<> describe_jobs(bool again) = 0;
  virtual Task<> ask_driver() = 0;
  // Returns the last reports.
  [[nodiscard]] virtual RanksOfJobs ranks() const = 0;
};
// Returns the ranks at the time of the driver's answer. If a job takes or gives back memory at that moment,
// both are asked again, up to three times in all. Else memory could be missing in the answer and in every
// job.
Task<RanksOfJobs> ask_at_one_moment(MemorySources& sources);

}  // namespace ckpt::agent
