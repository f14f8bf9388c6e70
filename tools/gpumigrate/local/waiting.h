// SPDX-License-Identifier: Apache-2.0
// Waits of `local up` and `local down` that need no coordinator. Each wait ends at the first SIGINT or
// SIGTERM, and at the command's limit.
// Threads: one. Errors: kAborted, with a line that tells what goes on.
#pragma once

#include "tools/gpumigrate/client/wait.h"
#include "tools/gpumigrate/local/state.h"

namespace ckpt::cli {

// Until one of the descriptors is readable or the time is over.
Result<void> wait_readable(Context& context, Wait& wait, const std::vector<int>& descriptors,
                           std::chrono::milliseconds time);
// Waits for another command on this home.
Result<LocalLock> take_lock(Context& context, Wait& wait);

}  // namespace ckpt::cli
