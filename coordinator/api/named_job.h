// SPDX-License-Identifier: Apache-2.0
// The job that a call names in its path: a whole job, or one of its ranks by the rank's own id or name.
// Threads: one io_context on one thread. Ownership: borrows jobs of the table (whole_job.h). Errors:
// kNotFound; kNotSupported for a rank where a call is for whole jobs.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "coordinator/fleet/whole_job.h"

namespace ckpt::coordinator {

struct NamedJob {
  WholeJob job;  // the subject of the call: the whole job, or the named rank as a job of its own
  JobId whole = 0;
  std::optional<std::uint32_t> rank;  // the number of the rank, if the call names a rank
};

// Finds the job by id or name. A whole job takes precedence over a rank, unless only the rank is live.
[[nodiscard]] Result<NamedJob> find_named(JobTable& jobs, std::string_view id_or_name);
// Finds NamedJob::job again by its id after a wait, in which the job may have been removed.
[[nodiscard]] Result<WholeJob> find_named(JobTable& jobs, JobId id);
// Returns the id of the whole job, or kNotSupported if the call names a rank.
[[nodiscard]] Result<JobId> whole_of(const NamedJob& named);

}  // namespace ckpt::coordinator
