// SPDX-License-Identifier: Apache-2.0
// A job of several ranks. It has no record of its own: its ranks are jobs that name it (wire::GangSpec), and what it
// is follows from them. So it is there after any restart, and after a loss of the store, as its ranks are.
// Threads: one io_context on one thread. Ownership: borrows jobs of the table, valid until one is removed.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/fleet/jobs.h"
#include "coordinator/lifecycle/rank_rules.h"

namespace ckpt::coordinator {

struct Gang {
  JobId id = 0;
  std::string name;
  std::size_t size = 0;     // how many ranks it was started with
  std::vector<Job*> ranks;  // those that are known, by rank
};

[[nodiscard]] std::optional<Gang> find_gang(JobTable& jobs, std::string_view id_or_name);
[[nodiscard]] std::optional<Gang> find_gang(JobTable& jobs, JobId id);

[[nodiscard]] Error gang_was_removed(JobId id);
// The rank whose end ends the gang: the first that ended otherwise than with exit code 0. None: there is no such.
[[nodiscard]] const Job* first_failed(const Gang& gang);
// Ended once all ranks have: as the first that failed, else with exit code 0. Parked and restoring as soon as one is.
[[nodiscard]] JobState state_of(const Gang& gang);
[[nodiscard]] int exit_code_of(const Gang& gang);
// Why it ended, or is about to end; empty: as it should.
[[nodiscard]] std::string reason_of(const Gang& gang);

}  // namespace ckpt::coordinator
