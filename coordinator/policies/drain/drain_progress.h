// SPDX-License-Identifier: Apache-2.0
// The progress of a drain's jobs, derived from the known facts about jobs and migrations. Pure: it changes
// the drain's entries, and nothing else.
// Threads: one. Errors: none.
#pragma once

#include <string>
#include <vector>

#include "coordinator/policies/drain/drain.h"

namespace ckpt::coordinator {

// The current facts on which a drain bases its decisions.
class DrainView {
 public:
  virtual ~DrainView() = default;
  // Returns the jobs that have not ended or are about to be restored, by id.
  [[nodiscard]] virtual std::vector<const Job*> live() const = 0;
  // Returns the job, or null if the job was removed.
  [[nodiscard]] virtual const Job* job(JobId id) const = 0;
  // Returns the open migration of the job, or null if there is none.
  [[nodiscard]] virtual const Migration* open_of(JobId job) const = 0;
  [[nodiscard]] virtual const Migration* migration(MigrationId id) const = 0;
};

// A failed migration of a drain. `refusal` is the reason why the target refused it; empty means that it
// failed otherwise, and the target may be tried again.
struct FailedMove {
  JobId job = 0;         // the whole job
  MigrationId move = 0;  // the id of the move, equal for ranks that moved together
  Place to;
  std::string refusal;
};

struct DrainProgress {
  bool coming = false;  // jobs are on their way to the place
  std::vector<FailedMove> failed;
};

// Returns true if the job holds a GPU in the scope.
[[nodiscard]] bool is_within(const Scope& scope, const Job& job);
// Returns the entry of a job that enters a drain.
[[nodiscard]] DrainJob drain_job_of(const Job& job);
// Marks the entry as moving with that migration.
void set_moving(DrainJob& entry, const Migration& migration);
// Updates the drain: adds the jobs that are now at the place, and records the outcome for each job of the
// drain.
[[nodiscard]] DrainProgress reconcile(Drain& drain, const DrainView& view, std::int64_t now_ms);
// Marks the jobs that must be restored from their newest images now, and returns them. `leaving` is the
// number of jobs that are already leaving the node.
[[nodiscard]] std::vector<JobId> begin_restores(Drain& drain, const DrainView& view, unsigned leaving,
                                                bool deadline_passed);

}  // namespace ckpt::coordinator
