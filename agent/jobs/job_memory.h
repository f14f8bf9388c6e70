// SPDX-License-Identifier: Apache-2.0
// How much GPU memory each job of this node holds: for users, and for placement, which adds it to what is
// free.
// Threads: the event loop. Ownership: the table and the inventory outlive it. Errors: a job that does not
// answer keeps the sum that it reported last.
#pragma once

#include <chrono>
#include <functional>

#include "agent/gpus/inventory.h"
#include "agent/jobs/device_bytes.h"
#include "agent/jobs/job_table.h"

namespace ckpt::agent {

class JobMemory : private MemorySources {
 public:
  // `is_held`: a migration or a snapshot has the job, which is not asked then.
  JobMemory(JobTable& jobs, Inventory& inventory, std::function<bool(wire::JobId)> is_held)
      : jobs_(jobs), inventory_(inventory), is_held_(std::move(is_held)) {}

  // Asks the jobs and the driver at one moment (device_bytes.h). One call at a time.
  Task<> look();
  // The time from one look to the next; shorter while a job starts.
  [[nodiscard]] std::chrono::seconds interval() const;
  // Fills in the device bytes of `instance`, which is `job`'s, as they are known at this moment.
  void add_known(const Job& job, wire::JobInstance& instance) const;
  // Fills in the bytes of the last look, to which the inventory's free memory belongs.
  void count(const Job& job, wire::JobInstance& instance) const;

 private:
  // MemorySources.
  Task<> describe_jobs(bool again) override;
  Task<> ask_driver() override;
  [[nodiscard]] RanksOfJobs ranks() const override;
  static Task<> describe(std::shared_ptr<Job> job);
  void find_processes();
  [[nodiscard]] GpuProcesses processes_of(const Job& job) const;

  JobTable& jobs_;
  Inventory& inventory_;
  std::function<bool(wire::JobId)> is_held_;
  RanksOfJobs at_last_look_;
  std::map<std::string, GpuProcesses> processes_;  // named by the driver, by their job's folder
};

}  // namespace ckpt::agent
