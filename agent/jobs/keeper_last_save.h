// SPDX-License-Identifier: Apache-2.0
// Reads a report in status.json. A keeper that has killed its rank without an agent's order writes the reason
// and the outcome for the rank's context (agent/keeper/last_save.h).
// Threads: any. Errors: none. A file that is missing or damaged has no report.
#pragma once

#include <string>

namespace ckpt::agent {

// Returns the report about the last save. An empty string means that nothing had to be saved.
[[nodiscard]] std::string read_keeper_last_save(const std::string& folder);
// Returns the reason why the state of a job that moved here was lost after the job continued. An empty string
// means that no state was lost.
[[nodiscard]] std::string read_keeper_loss(const std::string& folder);

}  // namespace ckpt::agent
