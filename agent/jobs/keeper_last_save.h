// SPDX-License-Identifier: Apache-2.0
// A keeper that has killed its rank without an agent's order reports on the rank's context, in status.json
// (agent/keeper/last_save.h). Threads: any.
// Errors: none; a file that is absent or damaged has no report.
#pragma once

#include <string>

namespace ckpt::agent {

// Empty: nothing was to be saved.
[[nodiscard]] std::string read_keeper_last_save(const std::string& folder);

}  // namespace ckpt::agent
