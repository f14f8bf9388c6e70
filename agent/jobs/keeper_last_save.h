// SPDX-License-Identifier: Apache-2.0
// A keeper that has killed its rank without an agent's order tells in status.json why, and what came of the
// rank's context (agent/keeper/last_save.h). Threads: any.
// Errors: none; a file that is absent or damaged has no report.
#pragma once

#include <string>

namespace ckpt::agent {

// Empty: nothing was to be saved.
[[nodiscard]] std::string read_keeper_last_save(const std::string& folder);
// Why the state of a job that moved here was lost after it went on. Empty: it was not.
[[nodiscard]] std::string read_keeper_loss(const std::string& folder);

}  // namespace ckpt::agent
