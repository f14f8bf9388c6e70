// SPDX-License-Identifier: Apache-2.0
// A job with all its ranks, one or several. It has no record of its own: its ranks are records that name the
// whole job (Job::whole()), and all its properties follow from them. So it exists after any restart, and
// after a loss of the store, as long as its ranks do.
// Threads: one io_context on one thread. Ownership: borrows jobs of the table, valid until one is removed.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/fleet/jobs.h"
#include "coordinator/lifecycle/rank_rules.h"

namespace ckpt::coordinator {

struct WholeJob {
  JobId id = 0;
  std::string name;
  std::size_t size = 0;     // the number of ranks with which the job was started
  std::vector<Job*> ranks;  // the known ranks, by rank number
};

[[nodiscard]] std::optional<WholeJob> find_whole(JobTable& jobs, std::string_view id_or_name);
[[nodiscard]] std::optional<WholeJob> find_whole(JobTable& jobs, JobId id);

[[nodiscard]] Error job_was_removed(JobId id);
// Returns the rank with the number, or kNotFound.
[[nodiscard]] Result<Job*> find_rank(const WholeJob& job, std::uint32_t number);
// Returns the rank whose failure decides the result of the job: the first rank that ended other than with
// exit code 0. Returns null if there is none.
[[nodiscard]] const Job* first_failed(const WholeJob& job);
// Returns the state of the job. It has ended once all ranks have ended, with the result of the first failed
// rank, otherwise with exit code 0. It is parked or restoring as soon as one rank is.
[[nodiscard]] JobState state_of(const WholeJob& job);
[[nodiscard]] int exit_code_of(const WholeJob& job);
// Returns why the job ended, is about to end, or is parked. An empty string means a normal end. For a job
// that is its only record, returns that record's own reason.
[[nodiscard]] std::string reason_of(const WholeJob& job);

}  // namespace ckpt::coordinator
