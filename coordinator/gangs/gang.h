// SPDX-License-Identifier: Apache-2.0
// A job of several ranks. A gang has no record of its own: its ranks are jobs that name the gang
// (wire::GangSpec), and all its properties follow from them. So the gang exists after any restart, and after
// a loss of the store, as long as its ranks do.
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
  std::size_t size = 0;     // the number of ranks at the start
  std::vector<Job*> ranks;  // the known ranks, by rank number
};

[[nodiscard]] std::optional<Gang> find_gang(JobTable& jobs, std::string_view id_or_name);
[[nodiscard]] std::optional<Gang> find_gang(JobTable& jobs, JobId id);

[[nodiscard]] Error gang_was_removed(JobId id);
// Returns the rank whose end ends the gang: the first rank that ended other than with exit code 0. Returns
// null if there is none.
[[nodiscard]] const Job* first_failed(const Gang& gang);
// Returns the state of the gang. It has ended once all ranks have ended, with the result of the first failed
// rank, otherwise with exit code 0. It is parked or restoring as soon as one rank is.
[[nodiscard]] JobState state_of(const Gang& gang);
[[nodiscard]] int exit_code_of(const Gang& gang);
// Returns why the gang ended or is about to end. Empty means a normal end.
[[nodiscard]] std::string reason_of(const Gang& gang);

}  // namespace ckpt::coordinator
