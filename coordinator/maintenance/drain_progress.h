// SPDX-License-Identifier: Apache-2.0
// The progress of a drain's jobs: finds those that are at the place, and reads the progress of each in the
// tables.
// Threads: one io_context on one thread. Ownership: borrows its dependencies, which outlive it. Errors: none.
#pragma once

#include "coordinator/maintenance/drain_moves.h"

namespace ckpt::coordinator {

// The job holds a GPU there.
[[nodiscard]] bool is_within(const Scope& scope, const Job& job);
// As it enters a drain.
[[nodiscard]] DrainJob drain_job_of(const Job& job);

class DrainProgress {
 public:
  DrainProgress(JobTable& jobs, const MigrationTable& migrations, DrainMoves& moves)
      : jobs_(jobs), migrations_(migrations), moves_(moves) {}

  // True: some jobs are on their way to the place.
  bool reconcile(Drain& drain);

 private:
  void look_at(Drain& drain, DrainJob& entry, const Job& job);
  void on_migration_ended(Drain& drain, DrainJob& entry, const Migration& migration);

  JobTable& jobs_;
  const MigrationTable& migrations_;
  DrainMoves& moves_;
};

}  // namespace ckpt::coordinator
