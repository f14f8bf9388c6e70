// SPDX-License-Identifier: Apache-2.0
// The state of a job as users see it, derived from all tables that have the job.
// Threads: one io_context on one thread. Ownership: borrows the tables, which outlive it. Errors: none.
#pragma once

#include <string>

#include "coordinator/fleet/gpu_faults.h"
#include "coordinator/fleet/nodes.h"
#include "coordinator/fleet/running_snapshots.h"
#include "coordinator/migration/migration_table.h"

namespace ckpt::coordinator {

class JobStates {
 public:
  JobStates(const NodeTable& nodes, const MigrationTable& migrations, const RunningSnapshots& snapshots,
            const GpuFaults& faults)
      : nodes_(nodes), migrations_(migrations), snapshots_(snapshots), faults_(faults) {}

  [[nodiscard]] std::string of(const Job& job) const;
  // Returns a disconnected node where an instance of the job may run, or an empty string if there is none.
  [[nodiscard]] std::string silent_node(const Job& job) const;
  // Returns why a job that must stop has not ended, or why its end is not known. An empty string means that
  // no node is disconnected.
  [[nodiscard]] std::string why_not_stopped(const Job& job) const;
  // Returns a finding against a GPU that the job runs on, or an empty string if there is none.
  [[nodiscard]] std::string trouble_of(const Job& job) const;
  // Returns the finding of trouble_of() as a warning before a move, or an empty string if there is none.
  [[nodiscard]] std::string warning_of(const Job& job) const;
  // Returns why the job cannot be moved now, or an empty string if it can be moved.
  [[nodiscard]] std::string why_not_movable(const Job& job) const;
  // Returns whether the job's program has created no CUDA context within kMakesContextMs. Commands then no
  // longer wait for the program.
  [[nodiscard]] bool lacks_context(const Job& job) const;
  // Returns whether the obstacle to a move lies in the job itself and is permanent.
  [[nodiscard]] bool stays_put(const Job& job) const;

 private:
  const NodeTable& nodes_;
  const MigrationTable& migrations_;
  const RunningSnapshots& snapshots_;
  const GpuFaults& faults_;
};

}  // namespace ckpt::coordinator
