// SPDX-License-Identifier: Apache-2.0
// The GPU memory that each job of this node uses. Users see it, and placement adds it to the free memory.
// Threads: the event loop. Ownership: the table and the inventory outlive this object. Errors: a job that
// does not answer keeps the sum that it last reported.
#pragma once

#include <chrono>
#include <functional>

#include "agent/gpus/inventory.h"
#include "agent/jobs/device_bytes.h"
#include "agent/jobs/job_table.h"

namespace ckpt::agent {

class JobMemory : private MemorySources {
 public:
  // Takes the table, the inventory and `is_held`. `is_held` returns true if a migration or a snapshot uses
  // the job. Such a job is not queried.
  JobMemory(JobTable& jobs, Inventory& inventory, std::function<bool(wire::JobId)> is_held)
      : jobs_(jobs), inventory_(inventory), is_held_(std::move(is_held)) {}

  // Queries the jobs and the driver at one moment (device_bytes.h). One call runs at a time.
  Task<> sample();
  // Returns the time between two queries. The time is shorter while a job starts.
  [[nodiscard]] std::chrono::seconds interval() const;
  // Sets the device bytes of `instance`, an instance of `job`, to the currently known values.
  void add_known(const Job& job, wire::JobInstance& instance) const;
  // Sets the device bytes of `instance`, an instance of `job`, to those of the last query. They match the
  // inventory's free memory.
  void count(const Job& job, wire::JobInstance& instance) const;

 private:
  // Implements MemorySources.
  Task<> describe_jobs(bool again) override;
  Task<> ask_driver() override;
  [[nodiscard]] RanksOfJobs ranks() const override;
  static Task<> describe(std::shared_ptr<Job> job);
  void find_processes();
  [[nodiscard]] GpuProcesses processes_of(const Job& job) const;

  JobTable& jobs_;
  Inventory& inventory_;
  std::function<bool(wire::JobId)> is_held_;
  RanksOfJobs last_sample_;
  std::map<std::string, GpuProcesses> processes_;  // processes that the driver reported, by the folder of
                                                   // their job
};

}  // namespace ckpt::agent
