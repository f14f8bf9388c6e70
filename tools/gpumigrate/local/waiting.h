// SPDX-License-Identifier: Apache-2.0
// The waits of `local up` and `local down` that need no coordinator. The first SIGINT or SIGTERM ends a wait,
// and so does the command's limit.
// Threads: one. Errors: kAborted, with a message that names what continues.
#pragma once

#include "tools/gpumigrate/client/wait.h"
#include "tools/gpumigrate/local/state.h"

namespace ckpt::cli {

// Waits until one of the descriptors is readable or the time is over.
Result<void> wait_readable(Context& context, Wait& wait, const std::vector<int>& descriptors,
                           std::chrono::milliseconds time);
// Acquires the lock. Waits while another command on this home has the lock.
Result<LocalLock> acquire_lock(Context& context, Wait& wait);

}  // namespace ckpt::cli
