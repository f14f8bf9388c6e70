// SPDX-License-Identifier: Apache-2.0
// Writes the exit of a program into JOBDIR/status.json. The file is durable before the exit is reported.
// Threads: any. Errors: kIo.
#pragma once

#include <sys/types.h>

#include <string>

#include "agent/keeper/rank/rank_state.h"
#include "agent/keeper/settings/config.h"
#include "libckpt/base/result.h"

namespace ckpt::keeper {

// Writes the report. `last_save` is the outcome of the save before the kill. `loss` is the reason why the
// keeper killed the rank without an order. Both may be empty.
Result<void> write_exit_report(const std::string& folder, const Config& config, const RankState& state,
                               pid_t rank, const std::string& last_save, const std::string& loss);

}  // namespace ckpt::keeper
