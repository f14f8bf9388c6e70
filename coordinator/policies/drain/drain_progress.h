// SPDX-License-Identifier: Apache-2.0
// The progress of a drain's jobs, read from what is known of jobs and migrations. Pure: it changes the drain's
// entries, and nothing else.
// Threads: one. Errors: none.
#pragma once

#include <string>
#include <vector>

#include "coordinator/policies/drain/drain.h"

namespace ckpt::coordinator {

// The facts that a drain goes by, as of now.
class DrainView {
 public:
  virtual ~DrainView() = default;
  // The jobs that have not ended, or are about to come back; by id.
  [[nodiscard]] virtual std::vector<const Job*> live() const = 0;
  // Null: it was removed.
  [[nodiscard]] virtual const Job* job(JobId id) const = 0;
  // The migration of the job that is open; null: there is none.
  [[nodiscard]] virtual const Migration* open_of(JobId job) const = 0;
  [[nodiscard]] virtual const Migration* migration(MigrationId id) const = 0;
  // The job that this one is a rank of.
  [[nodiscard]] virtual JobId whole_of(const Job& rank) const = 0;
  // Its move is prepared before it has a migration; its nodes are asked then, and not before.
  [[nodiscard]] virtual bool prepares(const Job& rank) const = 0;
};

// A migration of a drain that came to nothing. `refusal`: why it was refused; empty: it failed, and may be tried there
// again.
struct FailedMove {
  JobId job = 0;
  Place to;
  std::string refusal;
};

struct DrainProgress {
  bool coming = false;  // jobs are on their way to the place
  std::vector<FailedMove> failed;
};

// Returns true if the job holds a GPU there.
[[nodiscard]] bool is_within(const Scope& scope, const Job& job);
// Returns the entry of a job that enters a drain.
[[nodiscard]] DrainJob drain_job_of(const Job& job);
// Marks the entry as moved by that migration.
void set_moving(DrainJob& entry, const Migration& migration);
// Takes in the jobs that are at the place, and what has become of each of the drain's jobs.
[[nodiscard]] DrainProgress reconcile(Drain& drain, const DrainView& view, std::int64_t now_ms);
// Marks the jobs that shall be restored from their newest images now, and returns them. `leaving`: so many leave the
// node already.
[[nodiscard]] std::vector<JobId> begin_restores(Drain& drain, const DrainView& view, unsigned leaving,
                                                bool deadline_passed);

}  // namespace ckpt::coordinator
