// SPDX-License-Identifier: Apache-2.0
// The state of a job as users see it, from all tables that have the job.
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
  // A node that is not connected, where an instance of the job may run; empty: there is none.
  [[nodiscard]] std::string silent_node(const Job& job) const;
  // Why a job that is to be stopped has not ended, or how it ended is not known; empty: no node is silent.
  [[nodiscard]] std::string why_not_stopped(const Job& job) const;
  // A finding against a GPU that it runs on; empty: none.
  [[nodiscard]] std::string trouble_of(const Job& job) const;
  // The same as a warning before a move; empty: nothing.
  [[nodiscard]] std::string warning_of(const Job& job) const;
  // Empty, or why it cannot be moved now.
  [[nodiscard]] std::string why_not_movable(const Job& job) const;
  // Its program has no CUDA context, and has had the time in which a program that wants one makes it. So no verb waits
  // for it any more.
  [[nodiscard]] bool lacks_context(const Job& job) const;
  // True if the reason why a job is not movable now lies in the job itself, and will stay.
  [[nodiscard]] bool stays_put(const Job& job) const;

 private:
  const NodeTable& nodes_;
  const MigrationTable& migrations_;
  const RunningSnapshots& snapshots_;
  const GpuFaults& faults_;
};

}  // namespace ckpt::coordinator
