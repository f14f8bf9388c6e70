// SPDX-License-Identifier: Apache-2.0
// Writes how a program ended into JOBDIR/status.json, durably, before it is reported. Threads: any.
// Errors: kIo.
#pragma once

#include <sys/types.h>

#include <string>

#include "agent/keeper/rank/rank_state.h"
#include "agent/keeper/settings/config.h"
#include "libckpt/base/result.h"

namespace ckpt::keeper {

// `last_save`: how the save before the kill went; `loss`: why the keeper killed it without an order. Both may
// be empty.
Result<void> write_exit_report(const std::string& folder, const Config& config, const RankState& state,
                               pid_t rank, const std::string& last_save, const std::string& loss);

}  // namespace ckpt::keeper
